"""The store's settings: RocketMQ's defaults, the paths they imply, what is refused."""

import re
from pathlib import Path

import pytest

from rockstrata.config import config_markdown
from rockstrata.errors import ConfigError
from rockstrata.store.store_config import BrokerRole, FlushDiskType, StoreConfig

ROCKETMQ_DEFAULTS = """
mappedFileSizeCommitLog=1073741824 mappedFileSizeConsumeQueue=6000000 mapperFileSizeBatchConsumeQueue=13800000
maxHashSlotNum=5000000 maxIndexNum=20000000 messageIndexEnable=true messageIndexSafe=false maxMsgsNumBatch=64
defaultQueryMaxNum=32 maxMessageSize=4194304 autoMessageVersionOnTopicLen=true enabledAppendPropCRC=false
forceVerifyPropCRC=false checkCRCOnRecover=true brokerRole=ASYNC_MASTER flushDiskType=ASYNC_FLUSH
flushIntervalCommitLog=500 flushCommitLogTimed=true flushCommitLogLeastPages=4
flushCommitLogThoroughInterval=10000 commitIntervalCommitLog=200 commitCommitLogLeastPages=4
commitCommitLogThoroughInterval=200 transientStorePoolEnable=false transientStorePoolSize=5
fastFailIfNoBufferInStorePool=false warmMapedFileEnable=false syncFlushTimeout=5000
flushIntervalConsumeQueue=1000 flushConsumeQueueLeastPages=2 flushConsumeQueueThoroughInterval=60000
osPageCacheBusyTimeOutMills=1000 readUnCommitted=false maxTransferBytesOnMessageInMemory=262144
maxTransferBytesOnMessageInDisk=65536 maxTransferCountOnMessageInMemory=32 maxTransferCountOnMessageInDisk=8
accessMessageInMemoryMaxRatio=40 maxFilterMessageSize=16000 travelCqFileNumWhenGetMessage=1
maxConsumeQueueScan=20000 sampleCountThreshold=5000 fileReservedTime=72 deleteWhen=04
diskMaxUsedSpaceRatio=75 diskSpaceCleanForciblyRatio=85 diskSpaceWarningLevelRatio=90
cleanFileForciblyEnable=true replicasPerDiskPartition=1 logicalDiskSpaceCleanForciblyThreshold=0.8
deleteFileBatchMax=10 deleteCommitLogFilesInterval=100 deleteConsumeQueueFilesInterval=100
destroyMapedFileIntervalForcibly=120000 redeleteHangedFileInterval=120000 cleanResourceInterval=10000
flushDelayOffsetInterval=10000 enableLmq=false enableMultiDispatch=false commitLogRecoverMaxNum=10
flushConsumerOffsetInterval=5000 consumerOffsetUpdateVersionStep=500 delayOffsetUpdateVersionStep=200
transactionTimeOut=6000 transactionCheckMax=15 transactionCheckInterval=30000 transactionOpMsgMaxSize=4096
transactionOpBatchInterval=3000 defaultTopicQueueNums=8 listenPort=10911 brokerClusterName=DefaultCluster
useReentrantLockWhenPutMessage=true putConsumeQueueDataByFileChannel=true enableConsumeQueueExt=false
duplicationEnable=false enableDLegerCommitLog=false storeType=default
"""


def test_defaults_are_rocketmqs():
    ours = {row.key: row.default for row in StoreConfig.describe()}
    theirs = dict(word.split("=") for word in ROCKETMQ_DEFAULTS.split())
    assert {key: ours.pop(key) for key in theirs} == theirs
    assert set(ours) == {
        "storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths", "messageDelayLevel",
        "brokerName", "brokerIP1",
    }  # fmt: skip


def test_paths_follow_from_the_root():
    config = StoreConfig(store_path_root_dir="/data/store")
    root = Path("/data/store")
    assert config.root == root
    assert config.commit_log_paths == (root / "commitlog",)
    assert config.read_only_commit_log_paths == ()
    assert config.consume_queue_dir == root / "consumequeue"
    assert config.batch_consume_queue_dir == root / "batchconsumequeue"
    assert config.index_dir == root / "index"
    assert config.checkpoint_path == root / "checkpoint"
    assert config.abort_path == root / "abort"
    assert config.lock_path == root / "lock"
    assert config.config_dir == root / "config"


def test_without_a_root_the_store_lies_in_the_home_directory(monkeypatch):
    monkeypatch.setenv("HOME", "/home/rocket")
    assert StoreConfig().root == Path("/home/rocket/store")


def test_several_commit_log_paths_are_sorted_and_read_only_ones_get_no_new_file():
    config = StoreConfig(store_path_commit_log="/b, /a,/c,", read_only_commit_log_store_paths="/c,/d")
    assert config.commit_log_paths == (Path("/a"), Path("/b"))
    assert config.read_only_commit_log_paths == (Path("/c"), Path("/d"))


def test_consume_queue_files_hold_whole_units():
    assert StoreConfig(consume_queue_file_bytes=101).consume_queue_file_bytes == 120
    assert StoreConfig(consume_queue_file_bytes=100).consume_queue_file_bytes == 100


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("commit_log_file_bytes", 0),
        ("commit_log_file_bytes", 2**31),
        ("batch_consume_queue_file_bytes", 47),
        ("max_hash_slot_num", 0),
        ("enable_consume_queue_ext", True),
        ("store_type", "defaultRocksDB"),
        ("flush_disk_type", "NEVER"),
        ("message_delay_level", "1s 5x"),
        ("message_delay_level", " "),
        ("delete_when", "04;24"),
        ("delete_when", "noon"),
        ("listen_port", 65_536),
        ("logical_disk_space_clean_forcibly_threshold", 1.5),
    ],
)
def test_what_cannot_work_is_refused(setting, value):
    names = f"{setting}|messageDelayLevel"
    with pytest.raises(ConfigError, match=names):
        StoreConfig(**{setting: value})


def test_delay_levels_and_delete_hours_are_parsed():
    assert StoreConfig(message_delay_level="1s 2m 3h 4d").delay_levels_ms == (
        1_000,
        120_000,
        10_800_000,
        345_600_000,
    )
    assert len(StoreConfig().delay_levels_ms) == 18
    assert StoreConfig(delete_when="04;16").delete_hours == {4, 16}
    assert StoreConfig(delete_when="").delete_hours == set()


@pytest.mark.parametrize(
    ("ratio", "levels"), [(0, (0.10, 0.30, 0.35)), (100, (0.95, 0.85, 0.90)), (50, (0.5, 0.5, 0.5))]
)
def test_disk_levels_keep_within_rocketmqs_bounds(ratio, levels):
    config = StoreConfig(
        disk_max_used_space_ratio=ratio,
        disk_space_clean_forcibly_ratio=ratio,
        disk_space_warning_level_ratio=ratio,
    )
    assert (config.disk_max_used_level, config.disk_clean_forcibly_level, config.disk_warning_level) == levels


def test_a_broker_conf_loads_as_it_is(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text(
        "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\ndeleteWhen = 04\n"
        "fileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType = SYNC_FLUSH\n"
        "warmMapedFileEnable=true\nbrokerIP1=10.1.2.3\nlistenPort=10921\n"
    )

    config, warnings = StoreConfig.load_with_warnings(file)

    assert (config.file_reserved_time_hours, config.broker_role) == (48, BrokerRole.ASYNC_MASTER)
    assert (config.flush_disk_type, config.warm_mapped_file_enable) == (FlushDiskType.SYNC_FLUSH, True)
    assert (config.store_host(), config.broker_name_or_host) == (("10.1.2.3", 10921), "broker-a")
    assert [re.search(r": (\w+) is not", w)[1] for w in warnings] == ["brokerId"]


def test_the_default_store_host_is_an_address_of_this_machine():
    address, port = StoreConfig().store_host()
    assert re.fullmatch(r"[0-9]+(\.[0-9]+){3}", address)
    assert port == 10911
    assert StoreConfig().broker_name_or_host


def test_every_setting_is_documented_and_has_a_rocketmq_key():
    for row in StoreConfig.describe():
        assert row.key, row.field
        assert row.doc.endswith("."), row.field
        assert not row.field.endswith("_ms") or row.unit == "ms"
        assert not row.field.endswith("_bytes") or row.unit == "bytes"
    assert config_markdown(StoreConfig).count("\n") == len(StoreConfig.describe()) + 2
