"""Architectures only: no losses, no training, no data."""

from sfumato.networks.classifiers import Convolutional, FullyConnected, Linear, Predictor, Strided
from sfumato.networks.encoders.small import Conv4, ConvNet8, LeNet, ResNet, ResNet12, TinyDarknet
from sfumato.networks.encoders.squeeze_net import SqueezeNet
from sfumato.networks.faces.alignment import align
from sfumato.networks.faces.mtcnn import MTCNN
from sfumato.networks.faces.recognisers import DlibResNet, MobileFaceNet
from sfumato.networks.restorers import DnCNN, UNet, UpConvolutional

__all__ = [
    "MTCNN",
    "Conv4",
    "ConvNet8",
    "Convolutional",
    "DlibResNet",
    "DnCNN",
    "FullyConnected",
    "LeNet",
    "Linear",
    "MobileFaceNet",
    "Predictor",
    "ResNet",
    "ResNet12",
    "SqueezeNet",
    "Strided",
    "TinyDarknet",
    "UNet",
    "UpConvolutional",
    "align",
]
