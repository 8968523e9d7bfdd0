import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rockstrata.message import Message, encode_record, pack_host
from rockstrata.message.scan import scan
from rockstrata.message.topic_table import TopicTable
from rockstrata.store.torn import tails_by_kernel, tails_by_numpy

HOSTS = [pack_host("127.0.0.1", 1), pack_host("::1", 1)]


@st.composite
def logs_with_zeros(draw):
    """Records back to back, with runs of zeros where a disk may have lost sectors."""
    log = b""
    for n in range(draw(st.integers(1, 8))):
        topic = draw(st.sampled_from(["t", "a longer topic", "%RETRY%" + "r" * 150]))
        value = "v" * draw(st.sampled_from([0, 1, 30, 600, 1400]))
        message = Message.of(
            topic, b"b" * draw(st.sampled_from([0, 1, 200, 900])), properties={"k": value} if value else {}
        )
        log += encode_record(
            message,
            queue_offset=n,
            physical_offset=len(log),
            store_timestamp=1,
            store_host=draw(st.sampled_from(HOSTS)),
        )
    data = bytearray(log)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data) - 1)) // 512 * 512
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    return np.frombuffer(data, np.uint8)


@given(logs_with_zeros())
def test_the_kernel_and_numpy_suspect_the_same_records(data):
    found = scan(data, 0, len(data), TopicTable(), keys=False)
    assert tails_by_kernel(data, found).tolist() == tails_by_numpy(data, found).tolist()
