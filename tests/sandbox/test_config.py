import pytest

from springtide.core.errors import UsageError
from springtide.recipe import load_recipe


@pytest.mark.parametrize(
    "path",
    [
        *("tools", "", "/", "//opt", "/opt/", "/opt/../etc", "/opt/./x"),
        *("/tmp", "/tmp/x", "/var", "/var/tmp/x", "/work/x", "/proc/1", "/dev/shm"),
    ],
)
def test_a_folder_that_would_cover_what_is_the_boxs_own_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match=r"sandbox\.read_only: .* is not allowed: it takes absolute paths") as caught:
        load_recipe("quickstart", [f'sandbox.read_only=["/opt/tools", "{path}"]'])
    assert f'"{path}"' in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_other_folders_are_shown() -> None:
    paths = ("/opt/tools", "/srv", "/variant", "/workshop")
    recipe = load_recipe("quickstart", [f"sandbox.read_only={list(paths)}"])
    assert recipe.sandbox.read_only == paths
