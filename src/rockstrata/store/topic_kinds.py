"""Topics that belong to the broker itself.

Answers to RocketMQ's TopicValidator (isSystemTopic) and to the topics TopicConfigManager adds at
start. Asked by topic removal, which spares them, and by whoever lets people delete topics.
"""

from rockstrata.message.delay import SCHEDULE_TOPIC
from rockstrata.store.multi_dispatch import LIGHT_QUEUE_PREFIX
from rockstrata.store.store_config import StoreConfig

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
# Its consumer offsets are how far the transaction check has come in the half and op topics.
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"

SYSTEM_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        "TBW102",
        "BenchmarkTest",
        "RMQ_SYS_TRACE_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    }
)


def is_system_topic(topic: str, config: StoreConfig | None = None) -> bool:
    """True for a topic no user made; ``config`` adds those named after cluster and broker."""
    if topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX):
        return True
    if config is None:
        return False
    cluster = config.broker_cluster_name
    return topic in (cluster, f"{cluster}_REPLY_TOPIC", config.broker_name_or_host)


def is_light_topic(topic: str) -> bool:
    """True for the name of a light message queue."""
    return topic.startswith(LIGHT_QUEUE_PREFIX)
