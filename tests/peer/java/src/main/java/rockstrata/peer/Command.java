package rockstrata.peer;

/** One thing the peer can do. Whatever it throws becomes exit code 1 and a stack trace on stderr. */
interface Command {
    void run(Args args) throws Exception;
}
