"""`sfumato convert`."""

from pathlib import Path

import torch
from commands import Command, check_mistake

from sfumato.networks.faces.mobile_face_net import MobileFaceNet


def test_weights_are_converted_and_said_to_be(command: Command, tmp_path: Path):
    torch.save({"net_state_dict": MobileFaceNet().state_dict()}, tmp_path / "068.ckpt")
    said = command("convert", "mobile-face-net", "068.ckpt", "m.safetensors")
    assert said.out == f"written: m.safetensors ({(tmp_path / 'm.safetensors').stat().st_size:,} bytes)\n"
    assert MobileFaceNet.load(tmp_path / "m.safetensors")
    again = command("convert", "mobile-face-net", "068.ckpt", "m.safetensors")
    check_mistake(again, "m.safetensors: already exists: name another file, or replace it with --force")


def test_two_files_are_needed(command: Command):
    check_mistake(
        command("convert", "facenet", "a.pt"), "name the file to convert, and then the .safetensors"
    )
