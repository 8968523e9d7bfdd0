package rockstrata.peer;

import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.ExpressionMessageFilter;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.ReferredIterator;

/** {@code query --dir D --plan FILE}: one answer line per question line. */
final class Query implements Command {
    private static final int MAX_BYTES = 128 << 20;

    @Override
    public void run(Args args) throws Exception {
        List<JsonObject> plan = Plan.read(args.text("plan"));
        PeerStore peer = PeerStore.open(args);
        peer.awaitDispatch();
        for (int i = 0; i < plan.size(); i++) {
            Map<String, Object> answer = Out.map("query", i, "op", Plan.text(plan.get(i), "op"));
            try {
                answer.putAll(ask(peer.store, plan.get(i)));
            } catch (RuntimeException failure) {
                // What the store throws is an answer too: a look-up between two records does.
                answer.put("error", failure.toString());
            }
            Out.line(answer);
        }
        peer.leave(args);
    }

    static Map<String, Object> ask(DefaultMessageStore store, JsonObject step) throws Exception {
        String op = Plan.text(step, "op");
        String topic = Plan.text(step, "topic", null);
        int queueId = Plan.number(step, "queue_id", 0);
        long offset = Plan.longNumber(step, "offset", 0);
        switch (op) {
            case "key":
                return key(store, step);
            case "index_offsets":
                return Out.map("offsets", Versions.queryOffset(store, topic, Plan.text(step, "key"),
                    Plan.number(step, "max", 32), Plan.longNumber(step, "begin", 0),
                    Plan.longNumber(step, "end", Long.MAX_VALUE), Plan.text(step, "type", null)).getPhyOffsets());
            case "time":
                return Out.map("offset", store.getOffsetInQueueByTime(topic, queueId,
                    Plan.longNumber(step, "timestamp", 0),
                    BoundaryType.valueOf(Plan.text(step, "boundary", "LOWER"))));
            case "look":
                MessageExt message = store.lookMessageByOffset(Plan.longNumber(step, "physical_offset", 0));
                return Out.map("message", message == null ? null : Letters.fields(message));
            case "get":
                return get(store, step);
            case "cq":
                return units(store.getConsumeQueue(topic, queueId), offset, Plan.number(step, "count", 32));
            case "earliest":
                return Out.map("timestamp", store.getEarliestMessageTime(topic, queueId));
            case "store_time":
                return Out.map("timestamp", store.getMessageStoreTimeStamp(topic, queueId, offset));
            case "bounds":
                return Out.map("min", store.getMinOffsetInQueue(topic, queueId),
                    "max", store.getMaxOffsetInQueue(topic, queueId));
            default:
                throw new IllegalArgumentException("unknown op in " + step);
        }
    }

    private static Map<String, Object> key(DefaultMessageStore store, JsonObject step) throws Exception {
        QueryMessageResult result = Versions.queryMessage(store, Plan.text(step, "topic"), Plan.text(step, "key"),
            Plan.number(step, "max", 32), Plan.longNumber(step, "begin", 0),
            Plan.longNumber(step, "end", Long.MAX_VALUE), Plan.text(step, "type", null));
        List<Object> offsets = new ArrayList<>();
        for (ByteBuffer record : result.getMessageBufferList()) {
            offsets.add(Letters.decode(record.slice()).get("physical_offset"));
        }
        result.release();
        return Out.map("offsets", offsets, "index_last_phy_offset", result.getIndexLastUpdatePhyoffset(),
            "index_last_timestamp", result.getIndexLastUpdateTimestamp());
    }

    private static Map<String, Object> get(DefaultMessageStore store, JsonObject step) throws Exception {
        GetMessageResult result = store.getMessage("peer", Plan.text(step, "topic"),
            Plan.number(step, "queue_id", 0), Plan.longNumber(step, "offset", 0), Plan.number(step, "max", 32),
            Plan.number(step, "max_bytes", MAX_BYTES), filter(step));
        List<Object> physical = new ArrayList<>();
        for (SelectMappedBufferResult record : result.getMessageMapedList()) {
            physical.add(record.getStartOffset());
        }
        Map<String, Object> answer = Out.map("status", result.getStatus().name(),
            "next", result.getNextBeginOffset(), "min", result.getMinOffset(), "max", result.getMaxOffset(),
            "queue_offsets", new ArrayList<>(result.getMessageQueueOffset()), "physical_offsets", physical,
            "message_count", result.getMessageCount(), "total_bytes", result.getBufferTotalSize());
        result.release();
        return answer;
    }

    /** The broker's own filter for "tags" or "sql"; null when the step has neither. */
    private static MessageFilter filter(JsonObject step) throws Exception {
        String topic = Plan.text(step, "topic");
        if (Plan.has(step, "sql")) {
            String sql = Plan.text(step, "sql");
            SubscriptionData subscription = FilterAPI.build(topic, sql, ExpressionType.SQL92);
            ConsumerFilterData data = ConsumerFilterManager.build(topic, "peer", sql, ExpressionType.SQL92, 1);
            if (data == null) {
                throw new IllegalArgumentException("the filter does not compile: " + sql);
            }
            return new ExpressionMessageFilter(subscription, data, new ConsumerFilterManager());
        }
        if (Plan.has(step, "tags")) {
            SubscriptionData subscription = FilterAPI.buildSubscriptionData(topic, Plan.text(step, "tags"));
            return new ExpressionMessageFilter(subscription, null, new ConsumerFilterManager());
        }
        return null;
    }

    private static Map<String, Object> units(ConsumeQueueInterface queue, long offset, int count) throws Exception {
        List<Object> units = new ArrayList<>();
        ReferredIterator<CqUnit> iterator = queue == null ? null : queue.iterateFrom(offset);
        if (iterator == null) {
            return Out.map("units", null);
        }
        while (units.size() < count && iterator.hasNext()) {
            CqUnit unit = iterator.next();
            units.add(Out.map("queue_offset", unit.getQueueOffset(), "physical_offset", unit.getPos(),
                "size", unit.getSize(), "tags_code", unit.getTagsCode(), "batch_count", unit.getBatchNum()));
        }
        iterator.release();
        return Out.map("units", units);
    }
}
