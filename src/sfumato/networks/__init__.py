"""Architectures only: no losses, no training, no data."""

from sfumato.networks.cut import cut
from sfumato.networks.encoders.backbones import VGG16, AlexNet, SqueezeNet11
from sfumato.networks.encoders.conv4 import Conv4
from sfumato.networks.encoders.conv_net8 import ConvNet8
from sfumato.networks.encoders.dense_net import DenseNet
from sfumato.networks.encoders.le_net import LeNet
from sfumato.networks.encoders.resnet import ResNet
from sfumato.networks.encoders.resnet12 import ResNet12
from sfumato.networks.encoders.squeeze_net import SqueezeNet
from sfumato.networks.encoders.tiny_darknet import TinyDarknet
from sfumato.networks.faces.alignment import align
from sfumato.networks.faces.dlib_resnet import DlibResNet
from sfumato.networks.faces.finding import Faces
from sfumato.networks.faces.inception_resnet_v1 import InceptionResnetV1
from sfumato.networks.faces.mobile_face_net import MobileFaceNet
from sfumato.networks.faces.mtcnn import MTCNN, DetectorConfig
from sfumato.networks.predictor import Predictor
from sfumato.networks.restorers.dncnn import DnCNN
from sfumato.networks.restorers.unet import UNet
from sfumato.networks.restorers.up_convolutional import UpConvolutional
from sfumato.networks.task_classifiers import Convolutional, FullyConnected, Linear, Strided

__all__ = [
    "MTCNN",
    "VGG16",
    "AlexNet",
    "Conv4",
    "ConvNet8",
    "Convolutional",
    "DenseNet",
    "DetectorConfig",
    "DlibResNet",
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
