"""The data sources: content, address, terms, and layout on disk.

Facts about the data sets are here and nowhere else: `sfumato data list` prints them, and the readers quote
the address when a part is missing. Terms are a hint, not advice: the site has the last word.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Source:
    """One data source.

    Attributes:
        name: its name for `load`.
        write: its form on the command line and in a study.
        holds: how many images, of how many classes.
        url: its address; "" if nothing has to be downloaded.
        terms: its licence, or the words of its authors instead.
        layout: the files that are read, relative to DIR; one a line.
    """

    name: str
    write: str
    holds: str
    url: str
    terms: str
    layout: tuple[str, ...]


_IMAGENET_TERMS = "photographs of ImageNet: non-commercial research and education only"

SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        source.name: source
        for source in (
            Source(
                "faces",
                "faces",
                "any number of drawn people in patterned hats; by default 15,000 images of 500 people",
                "",
                "drawn here: no licence needed, nobody is shown",
                (),
            ),
            Source(
                "glyphs",
                "glyphs",
                "any number of drawn characters, each by several hands",
                "",
                "drawn here: no licence needed",
                (),
            ),
            Source(
                "scenes",
                "scenes",
                "any number of invented things, in clutter; by default 10,000 images of 500 things",
                "",
                "drawn here: no licence needed",
                (),
            ),
            Source(
                "folder",
                "folder:DIR",
                "your own images, a sub-folder per class",
                "",
                "yours",
                (
                    "anna/1.jpg",
                    "or train/anna/1.jpg, validation/..., test/... (also val, dev, testing, eval)",
                ),
            ),
            Source(
                "table",
                "table:FILE",
                "your own images with several labels",
                "",
                "yours",
                ("a CSV with a column 'file', one column per label, and perhaps a column 'split'",),
            ),
            Source(
                "parquet",
                "parquet:FILE",
                "your own images in Parquet, as Hugging Face writes them; or all files below a folder",
                "",
                "yours",
                (
                    "a column of image files as bytes, or as {bytes, path}, and one column per label",
                    "the splits: a column 'split', or files or folders called train-..., test-...",
                ),
            ),
            Source(
                "hats",
                "hats:FILE",
                "photographs of faces, your own or a data set's, each in drawn hats; by default of 300 kinds",
                "",
                "those of the photographs; the hats are drawn here",
                ("a CSV as table:FILE has, or a folder as folder:DIR has, of faces that lie alike",),
            ),
            Source(
                "omniglot",
                "omniglot:DIR",
                "32,460 drawings of 1,623 characters, 50 alphabets, 20 drawers",
                "https://github.com/brendenlake/omniglot",
                "MIT",
                (
                    "images_background/ALPHABET/characterNN/*.png",
                    "images_evaluation/ALPHABET/characterNN/*.png",
                ),
            ),
            Source(
                "celeba",
                "celeba:DIR",
                "202,599 photographs of 10,177 people, 40 attributes",
                "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
                "non-commercial research only, no copy may be passed on; photographs of real people",
                (
                    "img_align_celeba/000001.jpg",
                    "identity_CelebA.txt (not in the copies on Kaggle)",
                    "list_attr_celeba.txt or .csv",
                    "list_eval_partition.txt or .csv",
                ),
            ),
            Source(
                "miniimagenet",
                "miniimagenet:DIR",
                "60,000 photographs of 100 classes",
                "https://image-net.org/ (photographs), "
                "https://github.com/twitter-research/meta-learning-lstm (lists)",
                _IMAGENET_TERMS,
                (
                    "images/*.jpg with train.csv, val.csv, test.csv (columns filename, label)",
                    "or train/n01532829/*.jpg, val/..., test/...",
                ),
            ),
            Source(
                "cifar10",
                "cifar10:DIR",
                "60,000 photographs of 10 classes, 32x32",
                "https://www.cs.toronto.edu/~kriz/cifar.html",
                "no licence stated; the authors ask for a citation (Krizhevsky 2009)",
                ("cifar-10-batches-py/data_batch_1 to _5, test_batch, batches.meta",),
            ),
            Source(
                "cifar100",
                "cifar100:DIR",
                "60,000 photographs of 100 classes in 20 superclasses, 32x32",
                "https://www.cs.toronto.edu/~kriz/cifar.html",
                "no licence stated; the authors ask for a citation (Krizhevsky 2009)",
                ("cifar-100-python/train, test, meta",),
            ),
            Source(
                "caltech101",
                "caltech101:DIR",
                "about 8,700 photographs of 101 classes",
                "https://data.caltech.edu/records/mzrjq-6wc02",
                "CC BY 4.0, as Caltech lists it",
                ("101_ObjectCategories/accordion/image_0001.jpg",),
            ),
            Source(
                "imagenette",
                "imagenette:DIR",
                "about 13,400 photographs of 10 classes",
                "https://github.com/fastai/imagenette",
                _IMAGENET_TERMS,
                ("imagenette2/train/n01440764/*.JPEG, val/... (also imagenette2-320, imagenette2-160)",),
            ),
            Source(
                "stanford_dogs",
                "stanford_dogs:DIR",
                "20,580 photographs of 120 breeds of dogs",
                "http://vision.stanford.edu/aditya86/ImageNetDogs/",
                _IMAGENET_TERMS,
                (
                    "Images/n02085620-Chihuahua/*.jpg",
                    "lists/train_list.mat, lists/test_list.mat (for the official split)",
                ),
            ),
            Source(
                "fer",
                "fer:DIR",
                "35,887 grey faces of unknown people, 48x48, 7 emotions (8 with FER+)",
                "https://www.kaggle.com/c/challenges-in-representation-learning-facial-expression-"
                "recognition-challenge (images), https://github.com/microsoft/FERPlus (votes)",
                "images: no licence stated, the rules of the challenge hold; FER+ votes: MIT",
                ("fer2013.csv", "fer2013new.csv (FER+, if wanted)"),
            ),
            Source(
                "lfw",
                "lfw:DIR",
                "13,233 photographs of 5,749 people, 250x250",
                "https://umass-vis-lfw.github.io/",
                "no licence stated; for research on face verification, not to judge a product by; "
                "press photographs of real people",
                (
                    "lfw/Aaron_Eckhart/Aaron_Eckhart_0001.jpg (also lfw-deepfunneled, lfw_funneled)",
                    "peopleDevTrain.txt, peopleDevTest.txt (for the official split)",
                    "pairs.txt (for verification)",
                ),
            ),
        )
    }
)
