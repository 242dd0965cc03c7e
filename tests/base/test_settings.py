import pytest

from sfumato.base.settings import configure
from sfumato.errors import ConfigError
from sfumato.learn.few_shot import FewShotConfig


def test_overrides_alone_make_training_settings():
    assert configure(FewShotConfig, ["way=20", "denoiser_depth=null"]) == FewShotConfig(
        way=20, denoiser_depth=None
    )


def test_a_mistaken_training_setting_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="training: no key 'shots': did you mean 'shot'"):
        configure(FewShotConfig, ["shots=1"])
