from sfumato.dp.guarantee import Guarantee


def test_plain_words_name_the_unit_and_never_round_a_number_down():
    guarantee = Guarantee(definition="pure", value=3.001, pixels=1, whole_image=705.6, source="")
    assert str(guarantee) == "hides any 1 pixel at eps = 3.01 (pure DP); the whole image only at eps = 706"


def test_an_exact_number_is_not_rounded_up():
    guarantee = Guarantee(definition="gaussian", value=0.1 + 0.2, pixels=10, whole_image=21168.0, source="")
    assert str(guarantee) == (
        "hides any 10 pixels at mu = 0.3 (Gaussian DP); the whole image only at mu = 21200"
    )
