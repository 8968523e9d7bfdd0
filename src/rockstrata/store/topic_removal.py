"""Removing queues: of topics that are deleted, that nobody knows any more, or whose messages are gone.

Answers to DefaultMessageStore's deleteTopics, cleanUnusedTopic and cleanExpiredConsumerQueue. Called
through the methods of the local store, by the broker's admin commands and the command line.
"""

import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from rockstrata.store.topic_kinds import is_light_topic, is_system_topic

if TYPE_CHECKING:
    from rockstrata.store.local_store import LocalMessageStore

log = logging.getLogger(__name__)


def delete_topics(store: "LocalMessageStore", topics: Iterable[str], *, forget: bool = True) -> int:
    """Destroy the queues of topics; how many topics had any.

    Their records stay in the log until it expires. With ``forget`` the topics leave ``topics.json`` and
    consumers' offsets too. A topic that is written again starts at offset 0.
    """
    count = 0
    for topic in dict.fromkeys(topics):
        if forget:
            # First: from here on a broker refuses the topic.
            store.topics.delete(topic)
        with store.dispatcher.paused():
            # What was put before the deletion must not come after it and bring the queues back.
            store.dispatcher.catch_up(store.commit_log.max_offset)
            with store.commit_log.lock:
                store.offsets.remove(topic)
            queues = store.queues.delete_topic(topic)
        if forget:
            store.consumer_offsets.remove_topic(topic)
        if queues:
            _sync(store, topic)
            log.info("deleted topic %s with %d queues", topic, queues)
            count += 1
    return count


def clean_unused_topics(store: "LocalMessageStore", keep: Collection[str]) -> int:
    """Delete every topic that is not in ``keep``, nor a system topic, nor a light one; how many."""
    unused = [
        topic
        for topic in store.queues.topics()
        if topic not in keep and not is_system_topic(topic, store.config) and not is_light_topic(topic)
    ]
    return delete_topics(store, unused)


def clean_expired_queues(store: "LocalMessageStore", spare: Collection[str] = ()) -> int:
    """Destroy queues none of whose messages is in the log any more; how many. System topics stay.

    Such a queue starts again at offset 0, and so do its consumers. Name in ``spare`` the topics whose
    offsets somebody remembers: a tier that has offsets 0 to n must not see another message 0.
    """
    count = 0
    for queue in store.queues:
        topic, queue_id = queue.topic, queue.queue_id
        if topic in spare or is_system_topic(topic, store.config):
            continue
        with store.dispatcher.paused():
            end = queue.max_physical
            if not 0 <= end < store.commit_log.min_offset:
                continue
            with store.commit_log.lock:
                if store.offsets.get(topic, queue_id) != queue.max_offset:
                    # A message was put and waits for its dispatch.
                    continue
                store.offsets.remove_queue(topic, queue_id)
            count += store.queues.delete_queues(topic, [queue_id])
        store.consumer_offsets.remove_queue(topic, queue_id)
        _sync(store, topic)
        log.info("deleted queue %d of topic %s: its last message ended at %d", queue_id, topic, end)
    return count


def _sync(store: "LocalMessageStore", topic: str) -> None:
    """A power cut must not bring the directories back."""
    for root in (store.config.consume_queue_dir, store.config.batch_consume_queue_dir):
        for directory in (root / topic, root):
            if store.disk.exists(directory):
                store.disk.sync_dir(directory)
