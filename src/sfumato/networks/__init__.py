"""Architectures only: no losses, no training, no data."""

from sfumato.networks.alignment import align
from sfumato.networks.conv4 import Conv4
from sfumato.networks.cut import cut
from sfumato.networks.dncnn import DnCNN
from sfumato.networks.inception_resnet_v1 import InceptionResnetV1
from sfumato.networks.mobile_face_net import MobileFaceNet
from sfumato.networks.mtcnn import MTCNN, DetectorConfig, Faces
from sfumato.networks.predictor import Predictor
from sfumato.networks.resnet12 import ResNet12
from sfumato.networks.squeeze_net import SqueezeNet
from sfumato.networks.task_classifiers import Convolutional, FullyConnected, Strided
from sfumato.networks.tiny_darknet import TinyDarknet
from sfumato.networks.unet import UNet
from sfumato.networks.up_convolutional import UpConvolutional

__all__ = [
    "MTCNN",
    "Conv4",
    "Convolutional",
    "DetectorConfig",
    "DnCNN",
    "Faces",
    "FullyConnected",
    "InceptionResnetV1",
    "MobileFaceNet",
    "Predictor",
    "ResNet12",
    "SqueezeNet",
    "Strided",
    "TinyDarknet",
    "UNet",
    "UpConvolutional",
    "align",
    "cut",
]
