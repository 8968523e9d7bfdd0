"""Settings of the local store, with RocketMQ's keys and defaults.

Answers to RocketMQ's MessageStoreConfig and to the part of BrokerConfig that reaches the store.
Made by the command line or by a test; read by everything in ``store``.
"""

import re
import socket
from dataclasses import dataclass
from enum import Enum

from rockstrata.config import LONG_MAX, setting
from rockstrata.errors import ConfigError
from rockstrata.message.delay import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rockstrata.store.store_files import StoreFiles


class FlushDiskType(Enum):
    """When a put is answered: at once, or when its bytes are on disk."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class BrokerRole(Enum):
    """The part a broker plays in its group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, kw_only=True)
class StoreConfig(StoreFiles):
    """Settings of one store directory."""

    # Index.
    message_index_enable: bool = setting(True, key="messageIndexEnable", doc="Build the key index.")
    message_index_safe: bool = setting(
        False, key="messageIndexSafe", doc="Start recovery early enough to rebuild every index item."
    )
    max_msgs_num_batch: int = setting(64, key="maxMsgsNumBatch", doc="Most results of a query by key.")
    default_query_max_num: int = setting(
        32, key="defaultQueryMaxNum", doc="Results of a query by unique key."
    )

    # Messages.
    max_message_bytes: int = setting(
        4 << 20, key="maxMessageSize", unit="bytes", doc="Largest body of a message."
    )
    auto_message_version_on_topic_len: bool = setting(
        True,
        key="autoMessageVersionOnTopicLen",
        doc="Write topics longer than 127 characters with the second record version.",
    )
    enabled_append_prop_crc: bool = setting(
        False, key="enabledAppendPropCRC", doc="End every record with a checksum of the whole record."
    )
    force_verify_prop_crc: bool = setting(
        False, key="forceVerifyPropCRC", doc="Recovery demands the checksum of the whole record."
    )
    check_crc_on_recover: bool = setting(True, key="checkCRCOnRecover", doc="Recovery checks body checksums.")

    # Flush of the commit log.
    flush_disk_type: FlushDiskType = setting(  # noqa: RUF009
        FlushDiskType.ASYNC_FLUSH, key="flushDiskType", doc="Whether a put waits until it is on disk."
    )
    flush_interval_commit_log_ms: int = setting(
        500, key="flushIntervalCommitLog", unit="ms", doc="Period of the asynchronous flush."
    )
    flush_commit_log_timed: bool = setting(
        True, key="flushCommitLogTimed", doc="Keep the period even if woken earlier."
    )
    flush_commit_log_least_pages: int = setting(
        4, key="flushCommitLogLeastPages", unit="4 KiB pages", doc="Least dirty pages worth a flush."
    )
    flush_commit_log_thorough_interval_ms: int = setting(
        10_000,
        key="flushCommitLogThoroughInterval",
        unit="ms",
        doc="After this long everything is flushed, however little.",
    )
    sync_flush_timeout_ms: int = setting(
        5_000, key="syncFlushTimeout", unit="ms", doc="Longest wait of a put for its flush."
    )
    commit_interval_commit_log_ms: int = setting(
        200, key="commitIntervalCommitLog", unit="ms", doc="Period of the copy from the pool to the file."
    )
    commit_commit_log_least_pages: int = setting(
        4, key="commitCommitLogLeastPages", unit="4 KiB pages", doc="Least pages worth a copy from the pool."
    )
    commit_commit_log_thorough_interval_ms: int = setting(
        200,
        key="commitCommitLogThoroughInterval",
        unit="ms",
        doc="After this long everything is copied from the pool.",
    )
    transient_store_pool_enable: bool = setting(
        False, key="transientStorePoolEnable", doc="Write to a pool of buffers first; not on a slave."
    )
    transient_store_pool_size: int = setting(
        5, key="transientStorePoolSize", minimum=1, doc="Buffers in the pool, each of one file's size."
    )
    fast_fail_if_no_buffer_in_store_pool: bool = setting(
        False, key="fastFailIfNoBufferInStorePool", doc="Refuse a put rather than wait for a buffer."
    )
    warm_mapped_file_enable: bool = setting(
        False,
        key="warmMapedFileEnable",
        aliases=("warmMappedFileEnable",),
        doc="Touch every page of a new file.",
    )
    os_page_cache_busy_timeout_ms: int = setting(
        1_000,
        key="osPageCacheBusyTimeOutMills",
        unit="ms",
        maximum=LONG_MAX,
        doc="A put that held the lock this long makes the next ones fail fast.",
    )

    # Dispatch and consume queues.
    read_uncommitted: bool = setting(
        False, key="readUnCommitted", doc="Dispatch messages before they are confirmed."
    )
    flush_interval_consume_queue_ms: int = setting(
        1_000, key="flushIntervalConsumeQueue", unit="ms", doc="Period of the consume queue flush."
    )
    flush_consume_queue_least_pages: int = setting(
        2, key="flushConsumeQueueLeastPages", unit="4 KiB pages", doc="Least dirty pages worth a flush."
    )
    flush_consume_queue_thorough_interval_ms: int = setting(
        60_000,
        key="flushConsumeQueueThoroughInterval",
        unit="ms",
        doc="After this long everything is flushed, and the checkpoint.",
    )
    enable_lmq: bool = setting(False, key="enableLmq", doc="Light message queues.")
    enable_multi_dispatch: bool = setting(
        False, key="enableMultiDispatch", doc="One message in several light queues."
    )
    commit_log_recover_max_num: int = setting(
        10, key="commitLogRecoverMaxNum", minimum=1, doc="Commit log files recovery looks back at most."
    )

    # Reading.
    max_transfer_bytes_in_memory: int = setting(
        262_144,
        key="maxTransferBytesOnMessageInMemory",
        unit="bytes",
        doc="Most bytes of a pull of recent messages.",
    )
    max_transfer_count_in_memory: int = setting(
        32, key="maxTransferCountOnMessageInMemory", doc="Most messages of a pull of recent messages."
    )
    max_transfer_bytes_on_disk: int = setting(
        65_536,
        key="maxTransferBytesOnMessageInDisk",
        unit="bytes",
        doc="Most bytes of a pull of old messages.",
    )
    max_transfer_count_on_disk: int = setting(
        8, key="maxTransferCountOnMessageInDisk", doc="Most messages of a pull of old messages."
    )
    access_message_in_memory_max_ratio: int = setting(
        40,
        key="accessMessageInMemoryMaxRatio",
        unit="% of RAM",
        maximum=100,
        doc="How far back the log is taken to be in memory.",
    )
    max_filter_message_bytes: int = setting(
        16_000,
        key="maxFilterMessageSize",
        unit="bytes",
        doc="Bytes of a consume queue that one pull scans at most.",
    )
    travel_cq_file_num_when_get_message: int = setting(
        1, key="travelCqFileNumWhenGetMessage", minimum=1, doc="Consume queue files one pull may cross."
    )
    max_consume_queue_scan: int = setting(
        20_000, key="maxConsumeQueueScan", doc="Units scanned before a count is estimated."
    )
    sample_count_threshold: int = setting(
        5_000, key="sampleCountThreshold", doc="Matches counted before a count is estimated."
    )

    # Retention.
    file_reserved_time_hours: int = setting(
        72, key="fileReservedTime", unit="h", doc="Age, by last change, at which a file may be deleted."
    )
    delete_when: str = setting("04", key="deleteWhen", unit="hour of day", doc="Hours, separated by `;`.")
    disk_max_used_space_ratio: int = setting(
        75, key="diskMaxUsedSpaceRatio", unit="%", doc="Above: delete expired files now. Kept in 10–95."
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85, key="diskSpaceCleanForciblyRatio", unit="%", doc="Above: delete the oldest. Kept in 30–85."
    )
    disk_space_warning_level_ratio: int = setting(
        90, key="diskSpaceWarningLevelRatio", unit="%", doc="Above: refuse messages. Kept in 35–90."
    )
    clean_file_forcibly_enable: bool = setting(
        True, key="cleanFileForciblyEnable", doc="A full disk may cost files that are not yet expired."
    )
    replicas_per_disk_partition: int = setting(
        1, key="replicasPerDiskPartition", minimum=1, doc="Stores that share the disk."
    )
    logical_disk_space_clean_forcibly_threshold: float = setting(
        0.8,
        key="logicalDiskSpaceCleanForciblyThreshold",
        maximum=1,
        doc="Fill of this store's share of the disk above which the oldest files go.",
    )
    delete_file_batch_max: int = setting(10, key="deleteFileBatchMax", minimum=1, doc="Files of one round.")
    delete_commit_log_files_interval_ms: int = setting(
        100, key="deleteCommitLogFilesInterval", unit="ms", doc="Pause between two commit log files."
    )
    delete_consume_queue_files_interval_ms: int = setting(
        100, key="deleteConsumeQueueFilesInterval", unit="ms", doc="Pause between two consume queues."
    )
    destroy_mapped_file_interval_forcibly_ms: int = setting(
        120_000,
        key="destroyMapedFileIntervalForcibly",
        aliases=("destroyMappedFileIntervalForcibly",),
        unit="ms",
        doc="How long a reader may keep an expired file.",
    )
    redelete_hanged_file_interval_ms: int = setting(
        120_000, key="redeleteHangedFileInterval", unit="ms", doc="Pause before such a file is tried again."
    )
    clean_resource_interval_ms: int = setting(
        10_000, key="cleanResourceInterval", unit="ms", minimum=1, doc="Period of cleaning."
    )

    # Delay, transactions, retry, consumer offsets.
    message_delay_level: str = setting(
        DEFAULT_DELAY_LEVELS, key="messageDelayLevel", doc="Delays of levels 1, 2, …, in s, m, h or d."
    )
    flush_delay_offset_interval_ms: int = setting(
        10_000,
        key="flushDelayOffsetInterval",
        unit="ms",
        minimum=1,
        maximum=LONG_MAX,
        doc="Period of saving `delayOffset.json`.",
    )
    delay_offset_update_version_step: int = setting(
        200, key="delayOffsetUpdateVersionStep", minimum=1, maximum=LONG_MAX, doc="Updates per data version."
    )
    transaction_timeout_ms: int = setting(
        6_000,
        key="transactionTimeOut",
        aliases=("transactionTimeout",),
        unit="ms",
        maximum=LONG_MAX,
        doc="Age at which a half message is first asked about.",
    )
    transaction_check_max: int = setting(
        15, key="transactionCheckMax", doc="Questions before a half message is given up."
    )
    transaction_check_interval_ms: int = setting(
        30_000,
        key="transactionCheckInterval",
        unit="ms",
        minimum=1,
        maximum=LONG_MAX,
        doc="Period of checks.",
    )
    transaction_op_msg_max_bytes: int = setting(
        4_096, key="transactionOpMsgMaxSize", unit="bytes", doc="Length at which an op message is written."
    )
    transaction_op_batch_interval_ms: int = setting(
        3_000, key="transactionOpBatchInterval", unit="ms", doc="Longest wait of an op message."
    )
    flush_consumer_offset_interval_ms: int = setting(
        5_000, key="flushConsumerOffsetInterval", unit="ms", minimum=1, doc="Period of `consumerOffset.json`."
    )
    consumer_offset_update_version_step: int = setting(
        500,
        key="consumerOffsetUpdateVersionStep",
        minimum=1,
        maximum=LONG_MAX,
        doc="Commits per data version.",
    )
    default_topic_queue_nums: int = setting(
        8, key="defaultTopicQueueNums", minimum=1, doc="Queues of a topic made by its first message."
    )

    # Who we are.
    broker_role: BrokerRole = setting(  # noqa: RUF009
        BrokerRole.ASYNC_MASTER, key="brokerRole", doc="Part in the group."
    )
    broker_cluster_name: str = setting("DefaultCluster", key="brokerClusterName", doc="Name of the cluster.")
    broker_name: str = setting("", key="brokerName", shown="host name", doc="Name of the broker.")
    broker_ip: str = setting(
        "", key="brokerIP1", shown="address of this host", doc="Address put into message ids as store host."
    )
    listen_port: int = setting(10_911, key="listenPort", maximum=65_535, doc="Port, put there too.")

    # Accepted so that a RocketMQ file loads without a warning.
    use_reentrant_lock_when_put_message: bool = setting(
        True, key="useReentrantLockWhenPutMessage", doc="No effect here: there is one kind of lock."
    )
    put_consume_queue_data_by_file_channel: bool = setting(
        True, key="putConsumeQueueDataByFileChannel", doc="No effect here: there is one way to write."
    )

    def check(self) -> None:
        """Round what RocketMQ rounds; refuse what cannot work."""
        super().check()
        _ = self.delay_levels_ms, self.delete_hours

    @property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Delay of each level; level 1 comes first."""
        return parse_delay_levels(self.message_delay_level)

    @property
    def delete_hours(self) -> frozenset[int]:
        """Hours of the day at which expired files are deleted."""
        words = [word.strip() for word in self.delete_when.split(";") if word.strip()]
        if not all(re.fullmatch("[0-9]{1,2}", word) and int(word) < 24 for word in words):
            raise ConfigError(
                "setting delete_when",
                expected="hours from 0 to 23, separated by ;",
                found=repr(self.delete_when),
            )
        return frozenset(int(word) for word in words)

    @property
    def disk_max_used_level(self) -> float:
        """``disk_max_used_space_ratio`` as a fraction, within RocketMQ's bounds; so the next two."""
        return min(max(self.disk_max_used_space_ratio, 10), 95) / 100

    @property
    def disk_clean_forcibly_level(self) -> float:
        """Above this fill the oldest files go, expired or not."""
        return min(max(self.disk_space_clean_forcibly_ratio, 30), 85) / 100

    @property
    def disk_warning_level(self) -> float:
        """Above this fill messages are refused."""
        return min(max(self.disk_space_warning_level_ratio, 35), 90) / 100

    @property
    def broker_name_or_host(self) -> str:
        """The configured broker name, else this machine's, as RocketMQ chooses."""
        return self.broker_name or socket.gethostname() or "DEFAULT_BROKER"

    def store_host(self) -> tuple[str, int]:
        """Address and port for the store host field, hence for message ids."""
        return self.broker_ip or _local_address(), self.listen_port


def _local_address() -> str:
    """The address other machines reach this one by, 127.0.0.1 if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it only chooses a route.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
