"""Topics: created, changed, deleted, remembered, in RocketMQ's file."""

import json

import pytest

from rockstrata.errors import ConfigError, DiskFullError
from rockstrata.store.config_file import ConfigFile, DataVersion
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.store.topics import (
    CleanupPolicy,
    MessageType,
    Perm,
    QueueType,
    TopicConfig,
    TopicFilterType,
    Topics,
)
from rockstrata.testing.manual_clock import ManualClock

# Written by RocketMQ 5.3.3 (fastjson 1): T3 shares its attributes with T1, T4 has none.
JAVA_5_3_3 = """{
\t"dataVersion":{
\t\t"counter":0,
\t\t"stateVersion":0,
\t\t"timestamp":1794779991250
\t},
\t"topicConfigTable":{
\t\t"T4":{
\t\t\t"order":false,
\t\t\t"perm":6,
\t\t\t"readQueueNums":16,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"T4",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":16
\t\t},
\t\t"T1":{
\t\t\t"attributes":{
\t\t\t\t"message.type":"FIFO",
\t\t\t\t"queue.type":"BatchCQ"
\t\t\t},
\t\t\t"order":false,
\t\t\t"perm":6,
\t\t\t"readQueueNums":4,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"T1",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":8
\t\t},
\t\t"T2":{
\t\t\t"attributes":{},
\t\t\t"order":true,
\t\t\t"perm":2,
\t\t\t"readQueueNums":1,
\t\t\t"topicFilterType":"MULTI_TAG",
\t\t\t"topicName":"T2",
\t\t\t"topicSysFlag":3,
\t\t\t"writeQueueNums":1
\t\t},
\t\t"T3":{
\t\t\t"attributes":{"$ref":"$.topicConfigTable.T1.attributes"},
\t\t\t"order":false,
\t\t\t"perm":6,
\t\t\t"readQueueNums":4,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"T3",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":8
\t\t}
\t}
}"""


class FullDisk(PosixDisk):
    full = False

    def write_file(self, path, data):
        if self.full:
            raise DiskFullError("disk full", path=path)
        super().write_file(path, data)


@pytest.fixture
def disk():
    return FullDisk()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "topics.json"


@pytest.fixture
def new_topics(path, disk):
    return lambda: Topics(ConfigFile(path, disk), ManualClock())


def loaded(topics: Topics) -> Topics:
    topics.load()
    return topics


def test_a_new_topic_has_rocketmqs_defaults_and_survives_a_restart(new_topics):
    new_topics().create_or_update(TopicConfig(topic_name="orders"))

    topic = loaded(new_topics()).get("orders")

    assert topic == TopicConfig(topic_name="orders", read_queue_nums=16, write_queue_nums=16, perm=6)
    assert (topic.queue_type, topic.message_type) == (QueueType.SIMPLE, MessageType.NORMAL)
    assert (topic.cleanup_policy, topic.reserve_time_hours) == (CleanupPolicy.DELETE, -1)
    assert topic.readable
    assert topic.writable
    assert not TopicConfig(topic_name="x", perm=int(Perm.INHERIT)).readable


def test_the_file_has_rocketmqs_shape(new_topics, path):
    new_topics().ensure(TopicConfig(topic_name="t", attributes={"queue.type": "BatchCQ"}))
    assert json.loads(path.read_text()) == {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000},
        "topicConfigTable": {
            "t": {
                "attributes": {"queue.type": "BatchCQ"},
                "order": False,
                "perm": 6,
                "readQueueNums": 16,
                "topicFilterType": "SINGLE_TAG",
                "topicName": "t",
                "topicSysFlag": 0,
                "writeQueueNums": 16,
            }
        },
    }
    assert list(json.loads(path.read_text())["topicConfigTable"]["t"]) == sorted(
        json.loads(path.read_text())["topicConfigTable"]["t"]
    )


def test_rocketmqs_file_is_read(new_topics, path):
    path.parent.mkdir()
    path.write_text(JAVA_5_3_3)
    topics = loaded(new_topics())
    assert set(topics.all()) == {"T1", "T2", "T3", "T4"}
    assert topics.get("T1").queue_type is topics.get("T3").queue_type is QueueType.BATCH
    assert topics.get("T1").message_type is MessageType.FIFO
    assert topics.get("T2") == TopicConfig(
        topic_name="T2",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=2,
        topic_filter_type=TopicFilterType.MULTI_TAG,
        topic_sys_flag=3,
        order=True,
    )
    assert topics.get("T4") == TopicConfig(topic_name="T4")
    assert topics.data_version == DataVersion(timestamp=1794779991250)


def test_the_queue_type_of_an_unknown_topic_is_simple(new_topics):
    topics = new_topics()
    assert topics.queue_type("nobody") is QueueType.SIMPLE
    topics.ensure(TopicConfig(topic_name="b", attributes={"queue.type": "BatchCQ"}))
    assert topics.queue_type("b") is QueueType.BATCH


def test_ensure_creates_what_is_missing_and_leaves_the_rest_in_one_save(new_topics):
    topics = new_topics()
    topics.ensure(TopicConfig(topic_name="a", perm=4))
    topics.ensure(TopicConfig(topic_name="a"), TopicConfig(topic_name="b"), TopicConfig(topic_name="c"))
    assert topics.get("a").perm == 4
    assert topics.data_version.counter == 2
    topics.ensure(TopicConfig(topic_name="a"))
    assert topics.data_version.counter == 2


def test_an_update_keeps_the_attributes(new_topics):
    topics = new_topics()
    topics.create_or_update(TopicConfig(topic_name="a", attributes={"message.type": "FIFO"}))
    topics.create_or_update(
        TopicConfig(topic_name="a", read_queue_nums=3, attributes={"message.type": "DELAY"})
    )
    assert (topics.get("a").read_queue_nums, topics.get("a").message_type) == (3, MessageType.FIFO)


def test_attributes_that_may_change_are_set_and_removed(new_topics):
    topics = new_topics()
    topics.ensure(TopicConfig(topic_name="a", attributes={"queue.type": "BatchCQ"}))
    assert topics.alter("a", {"reserve.time": "240"}).reserve_time_hours == 240
    assert topics.alter("a", {"message.type": "FIFO"}, remove=["reserve.time"]).attributes == {
        "queue.type": "BatchCQ",
        "message.type": "FIFO",
    }
    assert loaded(new_topics()).all() == topics.all()


@pytest.mark.parametrize(
    ("set_to", "remove", "message"),
    [
        ({"queue.type": "SimpleCQ"}, [], "attribute queue.type of topic a cannot change"),
        ({}, ["queue.type"], "attribute queue.type of topic a cannot change"),
        ({}, ["message.type"], "topic a has no attribute message.type"),
        ({"colour": "red"}, [], "unknown attribute of topic a cannot be used: found 'colour'"),
        ({"message.type": "LOUD"}, [], "attribute message.type of topic a cannot be used: found 'LOUD'"),
        ({"reserve.time": "-2"}, [], "found '-2'"),
        ({"reserve.time": "1h"}, [], "found '1h'"),
        ({"reserve.time": "9223372036854775808"}, [], "found"),
        ({"lite.topic.expiration": "43201"}, [], "found '43201'"),
    ],
)
def test_an_illegal_change_of_attributes_is_refused(new_topics, set_to, remove, message):
    topics = new_topics()
    topics.ensure(TopicConfig(topic_name="a", attributes={"queue.type": "BatchCQ"}))
    with pytest.raises(ConfigError, match=message):
        topics.alter("a", set_to, remove)
    with pytest.raises(ConfigError, match="unknown topic b"):
        topics.alter("b", {})
    assert topics.data_version.counter == 1


@pytest.mark.parametrize(
    "bad",
    [
        TopicConfig(topic_name=""),
        TopicConfig(topic_name="a", read_queue_nums=-1),
        TopicConfig(topic_name="a", write_queue_nums=2**31),
        TopicConfig(topic_name="a", attributes={"queue.type": "RocksDBCQ"}),
    ],
)
def test_an_illegal_topic_is_not_created(new_topics, bad):
    topics = new_topics()
    with pytest.raises(ConfigError):
        topics.create_or_update(bad)
    with pytest.raises(ConfigError):
        topics.ensure(bad)
    assert topics.all() == {}


def test_an_attribute_of_a_later_rocketmq_is_kept_and_an_impossible_queue_type_is_told(new_topics, path):
    path.parent.mkdir()
    path.write_text(
        '{"topicConfigTable":{"a":{"attributes":{"new":"x","queue.type":"Cubic","reserve.time":"z"}}}}'
    )
    topics = loaded(new_topics())
    topics.alter("a", {"message.type": "FIFO"})
    topic = loaded(new_topics()).get("a")
    assert topic.attribute("new") == "x"
    with pytest.raises(ConfigError, match=r"attribute queue\.type of topic a cannot be used: found 'Cubic'"):
        _ = topic.queue_type
    with pytest.raises(ConfigError, match="found 'z'"):
        _ = topic.reserve_time_hours


def test_a_topic_can_be_deleted_once(new_topics):
    topics = new_topics()
    topics.ensure(TopicConfig(topic_name="a"))
    assert topics.delete("a")
    assert not topics.delete("a")
    assert topics.get("a") is None
    assert loaded(new_topics()).all() == {}


def test_a_topic_that_could_not_be_saved_does_not_exist(new_topics, disk):
    topics = new_topics()
    topics.ensure(TopicConfig(topic_name="a"))
    disk.full = True
    with pytest.raises(DiskFullError):
        topics.ensure(TopicConfig(topic_name="b"))
    assert set(topics.all()) == {"a"}
    assert topics.data_version.counter == 1


def test_loading_adds_to_what_is_there(new_topics):
    new_topics().ensure(TopicConfig(topic_name="a", perm=4))
    topics = Topics(new_topics()._file, ManualClock())
    topics._table = {"a": TopicConfig(topic_name="a"), "b": TopicConfig(topic_name="b")}
    topics.load()
    assert {name: topic.perm for name, topic in topics.all().items()} == {"a": 4, "b": 6}
