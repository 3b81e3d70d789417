import pytest

from gradcheck.run.plan import joined_shards, parsed_shard, shard_of


@pytest.mark.parametrize("count", [0, 1, 2, 5, 12])
@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_shards_have_everything_once_and_go_together_again(count, of):
    items = list(range(count))
    parts = [shard_of(items, f"{number}/{of}") for number in range(1, of + 1)]
    assert sorted(item for part in parts for item in part) == items
    assert joined_shards(parts) == items
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_no_shard_is_everything():
    assert shard_of("abc", "") == "abc"
    assert joined_shards([]) == []


@pytest.mark.parametrize(
    "text", ["", "1", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1 /2", "²/3"]
)
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(ValueError, match="write I/N with 1 ≤ I ≤ N"):
        parsed_shard(text)
