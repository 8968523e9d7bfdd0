package rockstrata.peer;

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.embedded.EmbeddedChannel;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What a request handler needs when there is no socket. */
final class Contexts {
    private Contexts() {
    }

    static ChannelHandlerContext make() {
        return new EmbeddedChannel(new ChannelInboundHandlerAdapter()).pipeline().firstContext();
    }

    /** A request as it arrives: the header only as text fields. */
    static RemotingCommand request(int code, CommandCustomHeader header) {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, header);
        request.makeCustomHeaderToNet();
        return request;
    }
}
