import errno

import pytest


def test_a_small_disk_is_full_for_everybody_and_free_again(small_disk):
    disk = small_disk(1.0)
    disk.fill()
    assert disk.is_full()
    with pytest.raises(OSError) as failed:  # noqa: PT011  which one is asked below
        (disk.path / "more").write_bytes(bytes(8192))
    assert failed.value.errno == errno.ENOSPC
    (disk.path / "more").unlink(missing_ok=True)
    disk.free()
    (disk.path / "more").write_bytes(bytes(8192))
