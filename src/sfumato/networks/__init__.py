"""Architectures only: no losses, no training, no data."""

from sfumato.networks.alignment import align
from sfumato.networks.backbones import VGG16, AlexNet, SqueezeNet11
from sfumato.networks.conv4 import Conv4
from sfumato.networks.conv_net8 import ConvNet8
from sfumato.networks.cut import cut
from sfumato.networks.dense_net import DenseNet
from sfumato.networks.dncnn import DnCNN
from sfumato.networks.inception_resnet_v1 import InceptionResnetV1
from sfumato.networks.le_net import LeNet
from sfumato.networks.mobile_face_net import MobileFaceNet
from sfumato.networks.mtcnn import MTCNN, DetectorConfig, Faces
from sfumato.networks.predictor import Predictor
from sfumato.networks.resnet import ResNet
from sfumato.networks.resnet12 import ResNet12
from sfumato.networks.squeeze_net import SqueezeNet
from sfumato.networks.task_classifiers import Convolutional, FullyConnected, Linear, Strided
from sfumato.networks.tiny_darknet import TinyDarknet
from sfumato.networks.unet import UNet
from sfumato.networks.up_convolutional import UpConvolutional

__all__ = [
    "MTCNN",
    "VGG16",
    "AlexNet",
    "Conv4",
    "ConvNet8",
    "Convolutional",
    "DenseNet",
    "DetectorConfig",
    "DnCNN",
    "Faces",
    "FullyConnected",
    "InceptionResnetV1",
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
