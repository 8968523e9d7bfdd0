package rockstrata.peer;

import com.google.gson.JsonObject;
import java.net.UnknownHostException;
import java.util.Map;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/** One plan line put into a store, one way for every kind of message. */
final class Puts {
    private Puts() {
    }

    static PutMessageResult put(MessageStore store, JsonObject step) throws UnknownHostException {
        String kind = Plan.text(step, "kind", "single");
        switch (kind) {
            case "single":
                return store.putMessage(Letters.single(step));
            case "batch":
                return store.putMessages(Letters.batch(step));
            case "inner_batch":
                return store.putMessage(Letters.innerBatch(step));
            default:
                throw new IllegalArgumentException("kind must be single, batch or inner_batch, not " + kind);
        }
    }

    static Map<String, Object> answer(int number, PutMessageResult result) {
        AppendMessageResult append = result.getAppendMessageResult();
        Map<String, Object> answer = Out.map("put", number, "status", result.getPutMessageStatus().name());
        answer.put("append_status", append == null ? null : append.getStatus().name());
        if (append != null) {
            answer.put("physical_offset", append.getWroteOffset());
            answer.put("queue_offset", append.getLogicsOffset());
            answer.put("wrote_bytes", append.getWroteBytes());
            answer.put("msg_count", append.getMsgNum());
            answer.put("msg_id", append.getMsgId());
            answer.put("store_timestamp", append.getStoreTimestamp());
        }
        return answer;
    }
}
