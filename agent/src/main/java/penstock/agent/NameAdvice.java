package penstock.agent;

import net.bytebuddy.asm.Advice;

/**
 * Names an operation on entry and restores the thread's previous name on exit.
 * The bodies are inlined into Hadoop's methods, so they are written without
 * lambdas, private helpers or anything else that stays behind.
 */
final class NameAdvice {
    private NameAdvice() { }

    /** DataXceiver.readBlock and transferBlock: the client's name is the third argument. */
    static final class ThirdArgument {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static Op enter(@Advice.Argument(2) String client) {
            return Gates.enterClient(client);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Enter Op op) {
            Gates.exit(op);
        }
    }

    /** DataXceiver.writeBlock: the fourth, and empty if a DataNode sends a replica. */
    static final class FourthArgument {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static Op enter(@Advice.Argument(3) String client) {
            return Gates.enterPipeline(client);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Enter Op op) {
            Gates.exit(op);
        }
    }

    /** DataNode.DataTransfer.run: the name of the client that asked for a pipeline's recovery, else empty. */
    static final class ClientField {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static Op enter(@Advice.FieldValue("clientname") String client) {
            return Gates.enterPipeline(client);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Enter Op op) {
            Gates.exit(op);
        }
    }

    /** DataXceiver.copyBlock and replaceBlock, the two ends of a balancer's or mover's move. */
    static final class Balancer {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static Op enter() {
            return Gates.enterBalancer();
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Enter Op op) {
            Gates.exit(op);
        }
    }

    /** VolumeScanner.scanBlock, not run: an operation ends with its block, also in a thread that never does. */
    static final class Scanner {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static Op enter() {
            return Gates.enterScanner();
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Enter Op op) {
            Gates.exit(op);
        }
    }
}
