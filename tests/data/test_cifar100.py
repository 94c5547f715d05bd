"""CIFAR-100: its tree of superclasses, and superclasses of image data in general."""

from collections import Counter
from dataclasses import replace

import pytest

from lresnet.data.images.cifar100 import SOURCE
from tests.coloured import coloured_data


def test_there_are_twenty_superclasses_of_five_classes():
    records = SOURCE.files[0].records
    names = [name for name, _ in records.superclasses]
    assert names == sorted(names)  # the numbers in the files are alphabetical, as those of ImageData.tree
    assert len(names) == 20
    assert sorted(name for _, classes in records.superclasses for name in classes) == sorted(records.classes)
    assert set(Counter(records.superclass_of).values()) == {5}
    of = dict(zip(records.classes, records.superclass_of, strict=True))
    assert (of["trout"], of["wolf"], of["lawn_mower"]) == ("fish", "large_carnivores", "vehicles_2")


def test_image_data_have_a_tree_of_their_superclasses():
    data = coloured_data()
    assert data.tree is None
    tree = replace(data, superclass_of=("warm", "cold", "cold")).tree
    assert tree.parents.tolist() == [4, 3, 3, 5, 5, 5]
    with pytest.raises(ValueError, match="superclass_of has 2 names for 3 classes"):
        replace(data, superclass_of=("warm", "cold"))
