"""CIFAR-100: photographs of 100 classes, 32 x 32 pixels (Krizhevsky, 2009)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lresnet.data.source import File, Files, ImageRecords, ImageSource

if TYPE_CHECKING:
    from lresnet.data.image_data import ImageData

__all__ = ["SOURCE", "read"]

_CLASSES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
"""

# The tree of the data set: 20 superclasses of 5 classes each, in the order of the superclass byte of the files.
_SUPERCLASSES = """
    aquatic_mammals: beaver dolphin otter seal whale
    fish: aquarium_fish flatfish ray shark trout
    flowers: orchid poppy rose sunflower tulip
    food_containers: bottle bowl can cup plate
    fruit_and_vegetables: apple mushroom orange pear sweet_pepper
    household_electrical_devices: clock keyboard lamp telephone television
    household_furniture: bed chair couch table wardrobe
    insects: bee beetle butterfly caterpillar cockroach
    large_carnivores: bear leopard lion tiger wolf
    large_man-made_outdoor_things: bridge castle house road skyscraper
    large_natural_outdoor_scenes: cloud forest mountain plain sea
    large_omnivores_and_herbivores: camel cattle chimpanzee elephant kangaroo
    medium_mammals: fox porcupine possum raccoon skunk
    non-insect_invertebrates: crab lobster snail spider worm
    people: baby boy girl man woman
    reptiles: crocodile dinosaur lizard snake turtle
    small_mammals: hamster mouse rabbit shrew squirrel
    trees: maple_tree oak_tree palm_tree pine_tree willow_tree
    vehicles_1: bicycle bus motorcycle pickup_truck train
    vehicles_2: lawn_mower rocket streetcar tank tractor
"""


def _superclasses() -> tuple[tuple[str, tuple[str, ...]], ...]:
    rows = (line.split(":") for line in _SUPERCLASSES.strip().splitlines())
    return tuple((name.strip(), tuple(classes.split())) for name, classes in rows)


# The digests were computed from copies that are known to be right: the training file has the published sha256. Only a
# reordered copy of the test images was available; the standard deviations of its channels agree with the published ones
# to 15 digits.
_RECORDS = ImageRecords(
    folder="cifar-100-binary",
    train=("train.bin",),
    test=("test.bin",),
    shape=(3, 32, 32),
    label_bytes=2,  # the superclass, then the class
    classes=tuple(_CLASSES.split()),
    per_class=(500, 100),
    digests=(
        "7077d87fc363f92dbf1245f13ba80561d7b33a96c79ad57168d49dc172aaa92b",
        "96adb3db8da7632dbb350559a17b9f585fab5b17675de5fc8f6761384196b294",
    ),
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    superclasses=_superclasses(),
)

SOURCE = ImageSource(
    name="cifar100",
    summary="photographs of 100 classes, 32 x 32 pixels: 50,000 training and 10,000 test images",
    files=(
        File(
            "cifar-100-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            size=168513733,
            sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            records=_RECORDS,
        ),
    ),
    licence="none stated by the publisher, who asks to be cited",
    citation="Krizhevsky: Learning Multiple Layers of Features from Tiny Images, technical report, 2009",
)


def read(files: Files) -> ImageData:
    """Return 50,000 training and 10,000 test images, labelled with 100 classes; ``tree`` has the 20 superclasses."""
    from lresnet.data.formats.records import read_image_records

    return read_image_records(SOURCE, files)
