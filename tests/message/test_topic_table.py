"""Topics as dense integers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rockstrata.message.tags import java_hash_code
from rockstrata.message.topic_table import FLAG_SCHEDULE, TopicTable


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=20)))
def test_equal_names_have_equal_ids_and_ids_are_dense(names):
    table = TopicTable()
    ids = [table.intern(name) for name in names]
    assert table.names == list(dict.fromkeys(names))
    assert [table.names[number] for number in ids] == names
    assert [table.find(name) for name in names] == ids
    assert [table.find(name.encode()) for name in names] == ids


def test_bytes_that_java_reads_alike_are_one_topic():
    table = TopicTable()
    assert table.intern(b"t\xff") == table.intern(b"t\xfe") == table.intern("t\ufffd")
    assert table.names == ["t\ufffd"]


def test_a_table_grows_and_keeps_what_kernels_need():
    table = TopicTable()
    names = [f"topic-{n:04d}" for n in range(1000)]
    for number, name in enumerate(names):
        assert table.intern(name) == number
    arrays = table.arrays()
    assert len(table) == 1000
    assert (arrays.slots >= 0).sum() == 1000
    for entry in (0, 31, 32, 999):
        start, length = arrays.starts[entry], arrays.lengths[entry]
        assert arrays.blob[start : start + length].tobytes() == names[entry].encode()
        assert arrays.key_seeds[entry] == np.uint32(java_hash_code(names[entry] + "#") & 0xFFFFFFFF)


def test_the_schedule_topic_is_marked():
    table = TopicTable()
    number = table.intern("SCHEDULE_TOPIC_XXXX")
    table.intern("other")
    assert table.arrays().flags[:2].tolist() == [FLAG_SCHEDULE, 0]
    assert number == 0
    assert table.find("unknown") is None
