"""The data sources: content, address, terms, and layout on disk.

Facts about the data sets are here and nowhere else: `sfumato data list` prints them, and the readers quote
the address when a part is missing. Terms are a hint, not advice: the site has the last word.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Source:
    """One data source."""

    name: str  # for `load`
    holds: str  # how many images, of how many classes
    terms: str  # its licence, or the words of its authors instead
    layout: tuple[str, ...] = ()  # the files that are read, relative to DIR; one a line
    url: str = ""  # its address, if something has to be downloaded
    archive: str = ""  # what has to be downloaded from there
    place: str = "DIR"  # the word for its path on the command line and in a study; "" without one

    @property
    def write(self) -> str:
        """Its form on the command line and in a study."""
        return f"{self.name}:{self.place}" if self.place else self.name


_IMAGENET_TERMS = "photographs of ImageNet: non-commercial research and education only"

_SOURCES = (
    Source(
        "faces",
        "any number of drawn people in patterned hats; by default 15,000 images of 500 people",
        "drawn here: no licence needed, nobody is shown",
        place="",
    ),
    Source(
        "glyphs",
        "any number of drawn characters, each by several hands",
        "drawn here: no licence needed",
        place="",
    ),
    Source(
        "folder",
        "your own images, a sub-folder per class",
        "yours",
        ("anna/1.jpg", "or train/anna/1.jpg, validation/..., test/... (also val, dev, testing, eval)"),
    ),
    Source(
        "table",
        "your own images with several labels",
        "yours",
        ("a CSV with a column 'file', one column per label, and perhaps a column 'split'",),
        place="FILE",
    ),
    Source(
        "parquet",
        "your own images in Parquet, as Hugging Face writes them; or all files below a folder",
        "yours",
        (
            "a column of image files as bytes, or as {bytes, path}, and one column per label",
            "the splits: a column 'split', or files or folders called train-..., test-...",
        ),
        place="FILE",
    ),
    Source(
        "hats",
        "photographs of faces, your own or a data set's, each in drawn hats; by default of 300 kinds",
        "those of the photographs; the hats are drawn here",
        ("a CSV as table:FILE has, or a folder as folder:DIR has, of faces that lie alike",),
        place="FILE",
    ),
    Source(
        "omniglot",
        "32,460 drawings of 1,623 characters, 50 alphabets, 20 drawers",
        "MIT",
        ("images_background/ALPHABET/characterNN/*.png", "images_evaluation/ALPHABET/characterNN/*.png"),
        "https://github.com/brendenlake/omniglot",
    ),
    Source(
        "celeba",
        "202,599 photographs of 10,177 people, 40 attributes",
        "non-commercial research only, no copy may be passed on; photographs of real people",
        (
            "img_align_celeba/000001.jpg",
            "identity_CelebA.txt (not in the copies on Kaggle)",
            "list_attr_celeba.txt or .csv",
            "list_eval_partition.txt or .csv",
        ),
        "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        "the content of img_align_celeba.zip",
    ),
    Source(
        "miniimagenet",
        "60,000 photographs of 100 classes",
        _IMAGENET_TERMS,
        (
            "images/*.jpg with train.csv, val.csv, test.csv (columns filename, label)",
            "or train/n01532829/*.jpg, val/..., test/...",
        ),
        "https://image-net.org/ (photographs), "
        "https://github.com/twitter-research/meta-learning-lstm (lists)",
        "images with train.csv, val.csv and test.csv, or the folders train, val and test,",
    ),
    Source(
        "caltech101",
        "about 8,700 photographs of 101 classes",
        "CC BY 4.0, as Caltech lists it",
        ("101_ObjectCategories/accordion/image_0001.jpg",),
        "https://data.caltech.edu/records/mzrjq-6wc02",
        "the content of 101_ObjectCategories.tar.gz",
    ),
    Source(
        "imagenette",
        "about 13,400 photographs of 10 classes",
        _IMAGENET_TERMS,
        ("imagenette2/train/n01440764/*.JPEG, val/... (also imagenette2-320, imagenette2-160)",),
        "https://github.com/fastai/imagenette",
        "the content of imagenette2.tgz",
    ),
    Source(
        "stanford_dogs",
        "20,580 photographs of 120 breeds of dogs",
        _IMAGENET_TERMS,
        ("Images/n02085620-Chihuahua/*.jpg",),
        "http://vision.stanford.edu/aditya86/ImageNetDogs/",
        "the content of images.tar",
    ),
    Source(
        "fer",
        "35,887 grey faces of unknown people, 48x48, 7 emotions (8 with FER+)",
        "images: no licence stated, the rules of the challenge hold; FER+ votes: MIT",
        ("fer2013.csv", "fer2013new.csv (FER+, if wanted)"),
        "https://www.kaggle.com/c/challenges-in-representation-learning-facial-expression-recognition-challenge"
        " (images), https://github.com/microsoft/FERPlus (votes)",
        "the content of fer2013.tar.gz",
    ),
    Source(
        "lfw",
        "13,233 photographs of 5,749 people, 250x250",
        "no licence stated; for research on face verification, not to judge a product by; "
        "press photographs of real people",
        (
            "lfw/Aaron_Eckhart/Aaron_Eckhart_0001.jpg (also lfw-deepfunneled, lfw_funneled)",
            "peopleDevTrain.txt, peopleDevTest.txt (for the official split)",
        ),
        "https://umass-vis-lfw.github.io/",
        "the content of lfw.tgz",
    ),
)

SOURCES: Mapping[str, Source] = MappingProxyType({source.name: source for source in _SOURCES})
