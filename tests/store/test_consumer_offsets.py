"""Consumer offsets: committed, remembered over a restart, in RocketMQ's file."""

import threading

import pytest

from rockstrata.errors import ConfigError, DiskError
from rockstrata.store.config_file import ConfigFile, DataVersion
from rockstrata.store.consumer_offsets import ConsumerOffsets, ConsumerOffsetSaver
from rockstrata.store.posix_disk import PosixDisk
from rockstrata.testing.manual_clock import ManualClock

# Written by RocketMQ 5.5.0's ConsumerOffsetManager.
JAVA_5_5_0 = """{
\t"dataVersion":{
\t\t"counter":1,
\t\t"stateVersion":0,
\t\t"timestamp":1794779989530
\t},
\t"groupTopicMap":{
\t\t"g1":[
\t\t\t"TopicA",
\t\t\t"empty"
\t\t],
\t\t"g\\"2\\\\\\t\\u0001\u2028":[
\t\t\t"%RETRY%g中😀"
\t\t]
\t},
\t"offsetTable":{
\t\t"TopicA@g1":{
\t\t\t0:5,
\t\t\t-1:7,
\t\t\t1:99999999999
\t\t},
\t\t"%RETRY%g中😀@g\\"2\\\\\\t\\u0001\u2028":{
\t\t\t3:4
\t\t},
\t\t"empty@g1":{}
\t},
\t"pullOffsetTable":{}
}"""

# Written by RocketMQ 5.3.3's ConsumerOffsetManager.
JAVA_5_3_3 = """{
\t"dataVersion":{
\t\t"counter":1,
\t\t"stateVersion":0,
\t\t"timestamp":1794779989530
\t},
\t"groupTopicMap":{
\t\t"g1":["TopicA","empty"],
\t\t"g\\"2\\\\\\t\\u0001\\u2028":["%RETRY%g中😀"]
\t},
\t"offsetTable":{
\t\t"TopicA@g1":{0:5,-1:7,1:99999999999
\t\t},
\t\t"%RETRY%g中😀@g\\"2\\\\\\t\\u0001\\u2028":{3:4
\t\t},
\t\t"empty@g1":{}
\t}
}"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "consumerOffset.json"


@pytest.fixture
def new_offsets(path):
    def make(version_step: int = 500, disk: PosixDisk | None = None) -> ConsumerOffsets:
        return ConsumerOffsets(
            ConfigFile(path, disk or PosixDisk()), ManualClock(), version_step=version_step
        )

    return make


def test_an_offset_never_committed_is_minus_one(new_offsets):
    offsets = new_offsets()
    assert offsets.query("g", "t", 0) == -1
    assert offsets.query_all("g", "t") == {}


def test_commits_are_kept_per_group_topic_and_queue(new_offsets):
    offsets = new_offsets()
    offsets.commit("g", "t", 0, 5)
    offsets.commit("g", "t", 1, 6)
    offsets.commit("h", "t", 0, 7)
    assert [offsets.query("g", "t", 0), offsets.query("g", "t", 1), offsets.query("h", "t", 0)] == [5, 6, 7]
    assert offsets.query_all("g", "t") == {0: 5, 1: 6}
    assert offsets.topics_of("g") == {"t"}
    assert offsets.groups_of("t") == {"g", "h"}


def test_a_commit_may_go_back_and_is_told(new_offsets, caplog):
    offsets = new_offsets()
    offsets.commit("g", "t", 0, 5)
    offsets.commit("g", "t", 0, 3)
    assert offsets.query("g", "t", 0) == 3
    assert "group g went back from 5 to 3 in t queue 0" in caplog.text


def test_offsets_survive_a_restart(new_offsets):
    offsets = new_offsets()
    offsets.commit("g", "t", 0, 5)
    offsets.commit("%LMQ%组", "😀", 2**31 - 1, 2**63 - 1)
    offsets.persist()

    again = new_offsets()
    again.load()

    assert again.query("g", "t", 0) == 5
    assert again.query("%LMQ%组", "😀", 2**31 - 1) == 2**63 - 1
    assert again.data_version == offsets.data_version


def test_the_data_version_moves_once_per_step(new_offsets):
    offsets = new_offsets(version_step=3)
    versions = []
    for queue_offset in range(7):
        offsets.commit("g", "t", 0, queue_offset)
        versions.append(offsets.data_version.counter)
    assert versions == [0, 0, 1, 1, 1, 2, 2]
    assert offsets.data_version == DataVersion(counter=2, timestamp=1_700_000_000_000)


@pytest.mark.parametrize("text", [JAVA_5_5_0, JAVA_5_3_3])
def test_rocketmqs_file_is_read(new_offsets, path, text):
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    offsets = new_offsets()

    offsets.load()

    assert offsets.query_all("g1", "TopicA") == {0: 5, -1: 7, 1: 99999999999}
    assert offsets.query('g"2\\\t\x01\u2028', "%RETRY%g中😀", 3) == 4
    assert offsets.data_version == DataVersion(counter=1, timestamp=1794779989530)


def test_the_file_has_rocketmqs_shape(new_offsets, path):
    offsets = new_offsets()
    offsets.commit("g1", "TopicA", 10, 1)
    offsets.commit("g1", "TopicA", 9, 2)
    offsets.persist()
    assert path.read_text() == (
        '{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n\t\t"timestamp":0\n\t},\n'
        '\t"groupTopicMap":{\n\t\t"g1":[\n\t\t\t"TopicA"\n\t\t]\n\t},\n'
        '\t"offsetTable":{\n\t\t"TopicA@g1":{\n\t\t\t"9":2,\n\t\t\t"10":1\n\t\t}\n\t}\n}'
    )


def test_an_absent_data_version_and_unknown_fields_are_no_error(new_offsets, path):
    path.parent.mkdir()
    path.write_text('{"offsetTable":{"t@g":{0:1},"odd":{0:1},"a@b@c":{}},"groupTopicMap":{"x":7},"new":[1]}')
    offsets = new_offsets()
    offsets.load()
    assert offsets.query("g", "t", 0) == 1
    assert offsets.topics_of("g") == {"t"}
    offsets.commit("g", "t", 0, 2)
    offsets.persist()
    assert '"odd"' in path.read_text()


@pytest.mark.parametrize(
    "text", ['{"offsetTable":{"t@g":{0:"x"}}}', '{"offsetTable":{"t@g":{0:9223372036854775808}}}', "[]", "{"]
)
def test_a_damaged_file_without_backup_is_an_error(new_offsets, path, text):
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"consumerOffset\.json"):
        new_offsets().load()


def test_a_group_or_a_topic_can_be_forgotten(new_offsets):
    offsets = new_offsets()
    for group, topic in [("g", "t"), ("g", "u"), ("h", "t"), ("gg", "tt")]:
        offsets.commit(group, topic, 0, 1)
    offsets.remove_group("g")
    assert offsets.groups_of("t") == {"h"}
    offsets.remove_topic("t")
    assert offsets.query("h", "t", 0) == -1
    assert offsets.query("gg", "tt", 0) == 1


def test_nothing_is_written_when_nothing_changed(new_offsets, path):
    offsets = new_offsets()
    offsets.persist()
    assert not path.exists()
    offsets.commit("g", "t", 0, 1)
    offsets.persist()
    offsets.persist()
    assert not path.with_name(path.name + ".bak").exists()
    offsets.remove_group("g")
    offsets.persist()
    assert path.with_name(path.name + ".bak").exists()


def test_a_save_that_failed_is_tried_again(new_offsets, path):
    class BrokenOnce(PosixDisk):
        broken = True

        def write_file(self, path, data):
            if self.broken:
                self.broken = False
                raise DiskError("broken", path=path)
            super().write_file(path, data)

    offsets = new_offsets(disk=BrokenOnce())
    offsets.commit("g", "t", 0, 1)
    with pytest.raises(DiskError):
        offsets.persist()
    offsets.persist()
    assert path.exists()


def test_the_saver_saves_at_the_latest_when_it_stops(new_offsets, path):
    offsets = new_offsets()
    saver = ConsumerOffsetSaver(offsets, interval_ms=3_600_000)
    assert saver.interval_s == 3600
    saver.start()
    offsets.commit("g", "t", 0, 8)
    saver.stop()
    again = new_offsets()
    again.load()
    assert again.query("g", "t", 0) == 8


def test_threads_may_commit_while_others_save(new_offsets):
    offsets = new_offsets(version_step=10)

    def commit(group: str) -> None:
        for queue_offset in range(500):
            offsets.commit(group, f"t{queue_offset % 50}", 0, queue_offset)

    threads = [threading.Thread(target=commit, args=(f"g{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        offsets.persist()
    for thread in threads:
        thread.join()
    offsets.persist()

    again = new_offsets()
    again.load()
    assert all(again.query(f"g{n}", f"t{t}", 0) == 450 + t for n in range(4) for t in range(50))
    assert offsets.data_version.counter == 200
