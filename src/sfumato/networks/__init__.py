"""Architectures only: no losses, no training, no data."""

from sfumato.networks.conv4 import Conv4
from sfumato.networks.dncnn import DnCNN
from sfumato.networks.resnet12 import ResNet12

__all__ = ["Conv4", "DnCNN", "ResNet12"]
