package rockstrata.peer;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;

/** {@code dump --dir D [--exit halt]}: recovers the store and reads every queue from end to end. */
final class Dump implements Command {
    private static final int BATCH = 32;

    @Override
    public void run(Args args) throws Exception {
        PeerStore peer = PeerStore.open(args);
        boolean dispatched = peer.awaitDispatch();
        Out.line("dispatched", dispatched, "dispatch_position", peer.store.getReputFromOffset(),
            "commit_log_max", peer.store.getMaxPhyOffset());
        for (Map.Entry<String, ? extends Map<Integer, ConsumeQueueInterface>> topic
            : new TreeMap<>(peer.store.getConsumeQueueTable()).entrySet()) {
            for (ConsumeQueueInterface queue : new TreeMap<>(topic.getValue()).values()) {
                dump(peer, queue);
            }
        }
        peer.leave(args);
    }

    private static void dump(PeerStore peer, ConsumeQueueInterface queue) throws Exception {
        String topic = queue.getTopic();
        int queueId = queue.getQueueId();
        long min = peer.store.getMinOffsetInQueue(topic, queueId);
        long max = peer.store.getMaxOffsetInQueue(topic, queueId);
        List<Map<String, Object>> statuses = new ArrayList<>();
        List<Map<String, Object>> messages = new ArrayList<>();
        long offset = Math.max(min, 0);
        while (offset < max) {
            GetMessageResult result = peer.store.getMessage("peer", topic, queueId, offset, BATCH, null);
            if (result.getStatus() == GetMessageStatus.FOUND) {
                collect(result, messages);
            } else {
                statuses.add(Out.map("offset", offset, "status", result.getStatus().name(),
                    "next", result.getNextBeginOffset()));
            }
            result.release();
            if (result.getNextBeginOffset() <= offset) {
                statuses.add(Out.map("offset", offset, "status", "STUCK", "next", result.getNextBeginOffset()));
                break;
            }
            offset = result.getNextBeginOffset();
        }
        Out.line("queue", Out.map("topic", topic, "queue_id", queueId, "type", queue.getCQType().name(),
            "min", min, "max", max, "max_physical_offset", queue.getMaxPhysicOffset(),
            "messages", messages.size(), "statuses", statuses));
        for (Map<String, Object> message : messages) {
            Out.line("message", message);
        }
    }

    private static void collect(GetMessageResult result, List<Map<String, Object>> messages) {
        List<SelectMappedBufferResult> records = result.getMessageMapedList();
        for (int i = 0; i < records.size(); i++) {
            ByteBuffer record = records.get(i).getByteBuffer();
            Map<String, Object> fields = Letters.decode(record.slice());
            if (fields == null) {
                fields = Out.map("undecodable", true, "physical_offset", records.get(i).getStartOffset());
            }
            // What the consume queue calls it; the record says what the writer called it.
            fields.put("read_at", result.getMessageQueueOffset().get(i));
            messages.add(fields);
        }
    }
}
