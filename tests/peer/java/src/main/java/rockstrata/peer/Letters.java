package rockstrata.peer;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** Messages from plan lines, and answer lines from messages. */
final class Letters {
    private static final String LOOPBACK = "127.0.0.1:10911";

    private Letters() {
    }

    /** A message as the broker's send handler would give it to the store. */
    static MessageExtBrokerInner single(JsonObject step) throws UnknownHostException {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setBody(bytes(step, "body"));
        fill(message, step);
        message.setPropertiesString(Plan.text(step, "properties_string",
            MessageDecoder.messageProperties2String(message.getProperties())));
        return message;
    }

    /** An ordinary batch: the store will split it into one record per element. */
    static MessageExtBatch batch(JsonObject step) throws UnknownHostException {
        MessageExtBatch batch = new MessageExtBatch();
        batch.setBody(encodeElements(step));
        fill(batch, step);
        return batch;
    }

    /** An inner batch: one record that holds all elements. */
    static MessageExtBatch innerBatch(JsonObject step) throws UnknownHostException {
        MessageExtBatch batch = batch(step);
        batch.setSysFlag(batch.getSysFlag() | MessageSysFlag.NEED_UNWRAP_FLAG | MessageSysFlag.INNER_BATCH_FLAG);
        batch.setInnerBatch(true);
        int count = MessageDecoder.countInnerMsgNum(ByteBuffer.wrap(batch.getBody()));
        MessageAccessor.putProperty(batch, MessageConst.PROPERTY_INNER_NUM, Integer.toString(count));
        batch.setPropertiesString(MessageDecoder.messageProperties2String(batch.getProperties()));
        return batch;
    }

    private static void fill(MessageExtBrokerInner message, JsonObject step) throws UnknownHostException {
        message.setTopic(Plan.text(step, "topic"));
        message.setQueueId(Plan.number(step, "queue_id", 0));
        message.setFlag(Plan.number(step, "flag", 0));
        message.setSysFlag(Plan.number(step, "sys_flag", 0));
        message.setBornTimestamp(Plan.longNumber(step, "born_timestamp", System.currentTimeMillis()));
        message.setBornHost(host(Plan.text(step, "born_host", LOOPBACK)));
        message.setStoreHost(host(Plan.text(step, "store_host", LOOPBACK)));
        message.setReconsumeTimes(Plan.number(step, "reconsume_times", 0));
        message.setPreparedTransactionOffset(Plan.longNumber(step, "prepared_transaction_offset", 0));
        MessageAccessor.setProperties(message, properties(step));
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(message.getTags()));
    }

    private static byte[] encodeElements(JsonObject step) {
        List<Message> elements = new ArrayList<>();
        for (JsonElement element : step.getAsJsonArray("elements")) {
            JsonObject fields = element.getAsJsonObject();
            Message message = new Message(Plan.text(step, "topic"), bytes(fields, "body"));
            message.setFlag(Plan.number(fields, "flag", 0));
            MessageAccessor.setProperties(message, properties(fields));
            elements.add(message);
        }
        return MessageDecoder.encodeMessages(elements);
    }

    /** In the order of the plan, so that a plan decides the bytes. */
    private static Map<String, String> properties(JsonObject step) {
        Map<String, String> properties = new LinkedHashMap<>();
        if (Plan.has(step, "properties")) {
            step.getAsJsonObject("properties").entrySet()
                .forEach(entry -> properties.put(entry.getKey(), entry.getValue().getAsString()));
        }
        return properties;
    }

    private static byte[] bytes(JsonObject step, String name) {
        return Plan.has(step, name) ? Base64.getDecoder().decode(Plan.text(step, name)) : null;
    }

    /** {@code 1.2.3.4:5} or {@code [::1]:5}; literals only, so nothing is looked up. */
    static InetSocketAddress host(String text) throws UnknownHostException {
        int colon = text.lastIndexOf(':');
        String address = text.substring(0, colon).replace("[", "").replace("]", "");
        return new InetSocketAddress(InetAddress.getByName(address), Integer.parseInt(text.substring(colon + 1)));
    }

    static String text(SocketAddress host) {
        if (!(host instanceof InetSocketAddress)) {
            return null;
        }
        InetSocketAddress inet = (InetSocketAddress) host;
        String address = inet.getAddress().getHostAddress();
        return (address.contains(":") ? "[" + address + "]" : address) + ":" + inet.getPort();
    }

    /** Every field of a record as it was read back. */
    static Map<String, Object> fields(MessageExt message) {
        return Out.map(
            "topic", message.getTopic(),
            "queue_id", message.getQueueId(),
            "queue_offset", message.getQueueOffset(),
            "physical_offset", message.getCommitLogOffset(),
            "store_size", message.getStoreSize(),
            "tags", message.getTags(),
            "keys", message.getKeys(),
            "unique_key", message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
            "properties", message.getProperties(),
            "flag", message.getFlag(),
            "sys_flag", message.getSysFlag(),
            "born_timestamp", message.getBornTimestamp(),
            "store_timestamp", message.getStoreTimestamp(),
            "born_host", text(message.getBornHost()),
            "store_host", text(message.getStoreHost()),
            "reconsume_times", message.getReconsumeTimes(),
            "prepared_transaction_offset", message.getPreparedTransactionOffset(),
            "body", message.getBody() == null ? null : Base64.getEncoder().encodeToString(message.getBody()),
            "body_crc", message.getBodyCRC(),
            "msg_id", message.getMsgId());
    }

    /** Decodes one stored record; the body stays as stored, compressed or not. */
    static Map<String, Object> decode(ByteBuffer record) {
        MessageExt message = MessageDecoder.decode(record, true, false);
        return message == null ? null : fields(message);
    }
}
