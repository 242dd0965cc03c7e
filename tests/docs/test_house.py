"""The lint of lines: a room above its ceiling, a room without one and a module that is too long are named."""

import house


def counted(files: dict[str, int]) -> tuple[dict[str, int], list[str]]:
    return house.count((path, b"x\n" * lines) for path, lines in files.items())


def test_files_count_in_their_room_and_other_kinds_do_not():
    lines, _ = counted(
        {
            "src/sfumato/dp/a.py": 3,
            "src/sfumato/errors.py": 2,
            "src/sfumato/dp/card.jinja": 9,
            "tests/dp/a.py": 4,
        }
        | {"docs/templates/x/page.md.jinja": 5, "docs/page.md": 7, "studies/a.yaml": 6, "README.md": 8}
    )
    assert lines == {"src/dp": 3, "src": 2, "tests": 4, "templates": 5, "studies": 6, "files": 8}


def test_a_room_above_its_ceiling_and_a_room_without_one_are_named_with_the_cure():
    lines, _ = counted({"src/sfumato/dp/a.py": 3, "src/sfumato/new/a.py": 1})
    above, unknown = house.excesses(lines, {"src/dp": 2, "files": 2})
    assert "src/dp: 3 lines, at most 2" in above
    assert "src/new: 1 lines, at most 0" in unknown
    assert "docs/house.toml" in above
    assert house.excesses(lines, {"src/dp": 3, "src/new": 1, "files": 2}) == []


def test_a_module_over_the_limit_is_named():
    _, (sentence,) = counted({"src/sfumato/dp/a.py": house.MODULE + 1, "src/sfumato/dp/b.py": house.MODULE})
    assert "src/sfumato/dp/a.py" in sentence


def test_lowering_writes_the_lines_of_today_and_raises_no_ceiling(tmp_path, monkeypatch):
    monkeypatch.setattr(house, "CEILINGS", tmp_path / "house.toml")
    monkeypatch.setattr(house, "of_today", lambda: [("src/sfumato/dp/a.py", b"x\n" * 5)])
    (tmp_path / "house.toml").write_text('"src/dp" = 4\n"files" = 9\n')
    assert house.main(["--lower"]) == 0
    assert house.tomllib.loads((tmp_path / "house.toml").read_text()) == {"src/dp": 4, "files": 1}
    assert house.main([]) == 1
