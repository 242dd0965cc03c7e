"""Architectures only: no losses, no training, no data."""

from sfumato.networks.classifiers import Convolutional, FullyConnected, Linear, Predictor, Strided
from sfumato.networks.cut import cut
from sfumato.networks.encoders.backbones import VGG16, AlexNet, SqueezeNet11
from sfumato.networks.encoders.small import Conv4, ConvNet8, LeNet, ResNet, ResNet12, TinyDarknet
from sfumato.networks.encoders.squeeze_net import SqueezeNet
from sfumato.networks.faces.alignment import align
from sfumato.networks.faces.finding import Faces
from sfumato.networks.faces.mtcnn import MTCNN
from sfumato.networks.faces.recognisers import DlibResNet, MobileFaceNet
from sfumato.networks.restorers import DnCNN, UNet, UpConvolutional

__all__ = [
    "MTCNN",
    "VGG16",
    "AlexNet",
    "Conv4",
    "ConvNet8",
    "Convolutional",
    "DlibResNet",
    "DnCNN",
    "Faces",
    "FullyConnected",
    "LeNet",
    "Linear",
    "MobileFaceNet",
    "Predictor",
    "ResNet",
    "ResNet12",
    "SqueezeNet",
    "SqueezeNet11",
    "Strided",
    "TinyDarknet",
    "UNet",
    "UpConvolutional",
    "align",
    "cut",
]
