package rockstrata.peer;

import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;

/** Messages of the benchmarks: a body of 1,024 bytes makes a record of 1,209 bytes. */
final class BenchLetters {
    static final String TOPIC = "Bench";

    private final byte[] body;
    private final InetSocketAddress born = Letters.host("127.0.0.1:54321");
    private final InetSocketAddress store = Letters.host("127.0.0.1:10911");

    BenchLetters(int bodyBytes) throws Exception {
        body = new byte[bodyBytes];
        new Random(7).nextBytes(body);
    }

    /** Complete, its property string set, as the broker's send handler leaves it. */
    MessageExtBrokerInner single(int number, int queueId) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fill(message, queueId);
        Map<String, String> properties = properties(number);
        MessageAccessor.setProperties(message, properties);
        message.setPropertiesString(MessageDecoder.messageProperties2String(properties));
        return message;
    }

    /** One element of a batch, as a client has it before encoding. */
    Message element(int number) {
        Message message = new Message(TOPIC, body);
        MessageAccessor.setProperties(message, properties(number));
        return message;
    }

    void fill(MessageExtBrokerInner message, int queueId) {
        message.setTopic(TOPIC);
        message.setQueueId(queueId);
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(born);
        message.setStoreHost(store);
    }

    private static Map<String, String> properties(int number) {
        Map<String, String> properties = new HashMap<>();
        String digits = digits(number);
        properties.put("KEYS", digits);
        properties.put("UNIQ_KEY", "7F00000112340000000000AA" + digits);
        properties.put("TAGS", "TagA");
        properties.put("CLUSTER", "DefaultCluster");
        return properties;
    }

    private static String digits(int number) {
        char[] digits = new char[8];
        for (int i = 7; i >= 0; i--) {
            digits[i] = (char) ('0' + number % 10);
            number /= 10;
        }
        return new String(digits);
    }
}
