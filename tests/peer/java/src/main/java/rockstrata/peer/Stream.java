package rockstrata.peer;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.PutMessageResult;

/** {@code stream --dir D --topic T --queues N --bytes B [--sync] [--count C]}: acks until it is killed. */
final class Stream implements Command {
    @Override
    public void run(Args args) throws Exception {
        if (args.flag("sync")) {
            args.add("conf", "flushDiskType=SYNC_FLUSH");
        }
        int queues = args.number("queues", 4);
        int bytes = args.number("bytes", 256);
        long count = Long.parseLong(args.text("count", Long.toString(Long.MAX_VALUE)));
        String topic = args.text("topic", "Stream");
        PeerStore peer = PeerStore.open(args);
        for (long sequence = 0; sequence < count; sequence++) {
            int queueId = (int) (sequence % queues);
            PutMessageResult result = peer.store.putMessage(letter(topic, queueId, sequence, bytes));
            AppendMessageResult append = result.getAppendMessageResult();
            Out.line("ack", sequence, "status", result.getPutMessageStatus().name(), "queue_id", queueId,
                "queue_offset", append == null ? null : append.getLogicsOffset(),
                "physical_offset", append == null ? null : append.getWroteOffset(),
                "wrote_bytes", append == null ? null : append.getWroteBytes());
        }
        peer.leave(args);
    }

    /** The sequence number is the key, and opens the body. */
    static MessageExtBrokerInner letter(String topic, int queueId, long sequence, int bytes) throws Exception {
        byte[] number = (sequence + ";").getBytes(StandardCharsets.US_ASCII);
        byte[] body = Arrays.copyOf(number, Math.max(bytes, number.length));
        Arrays.fill(body, number.length, body.length, (byte) ('a' + sequence % 26));
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(queueId);
        message.setBody(body);
        message.setKeys(Long.toString(sequence));
        message.setTags("Tag" + sequence % 3);
        message.putUserProperty("sequence", Long.toString(sequence));
        message.getProperties().put(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
            MessageClientIDSetter.createUniqID());
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(Letters.host("127.0.0.1:54321"));
        message.setStoreHost(Letters.host("127.0.0.1:10911"));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }
}
