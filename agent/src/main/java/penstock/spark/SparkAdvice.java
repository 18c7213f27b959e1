package penstock.spark;

import io.netty.channel.socket.SocketChannel;
import java.io.File;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.WritableByteChannel;
import net.bytebuddy.asm.Advice;
import penstock.core.Stream;
import scala.Product;
import scala.collection.mutable.ArrayBuffer;

/**
 * Advice for a Spark executor: for each method of Spark that opens, reads or writes a local file outside of the shuffle
 * plug-in. The bodies are inlined, so they use no lambdas, private helpers or other members that are not inlined.
 */
public final class SparkAdvice {
    private SparkAdvice() { }

    /** DiskBlockManager's constructor: the directories exist, and there is no block yet. */
    static final class Directories {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.FieldValue("localDirs") File[] directories) {
            LocalFiles.serve(directories);
        }
    }

    /** DiskBlockObjectWriter.initialize, which reopens its file after each commit, to append to it. */
    static final class Opening {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.FieldValue("file") File file) {
            LocalFiles.opening(file);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit() {
            LocalFiles.notOpening();
        }
    }

    /**
     * TimeTrackingOutputStream's constructor, called by DiskBlockObjectWriter.initialize. The stream is below all of a
     * spill's buffers.
     */
    static final class Opened {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.FieldValue(value = Stream.FIELD, readOnly = false) LocalFile carried) {
            carried = LocalFiles.opened();
        }
    }

    static final class WriteOne {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.FieldValue(Stream.FIELD) LocalFile carried) {
            if (carried != null) {
                carried.before();
                carried.wrote(1);
            }
        }
    }

    static final class WriteAll {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.FieldValue(Stream.FIELD) LocalFile carried, @Advice.Argument(0) byte[] b) {
            if (carried != null) {
                carried.before();
                carried.wrote(b.length);
            }
        }
    }

    static final class Write {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.FieldValue(Stream.FIELD) LocalFile carried, @Advice.Argument(2) int length) {
            if (carried != null) {
                carried.before();
                carried.wrote(length);
            }
        }
    }

    /** close, of a reader or a writer. */
    static final class Close {
        @Advice.OnMethodExit(onThrowable = Throwable.class, suppress = Throwable.class)
        static void exit(@Advice.Thrown Throwable thrown,
                @Advice.FieldValue(value = Stream.FIELD, readOnly = false) LocalFile carried) {
            if (carried != null) {
                carried.close(thrown != null);
                carried = null;
            }
        }
    }

    /** NioBufferedFileInputStream's constructor. */
    static final class Reader {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.Argument(0) File file,
                @Advice.FieldValue(value = Stream.FIELD, readOnly = false) LocalFile carried) {
            carried = LocalFiles.reading(file, file.length());
        }
    }

    /** refill, in the reader's thread or in a thread that reads ahead for it; both may wait. */
    static final class Refill {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.FieldValue(Stream.FIELD) LocalFile carried,
                @Advice.FieldValue("byteBuffer") ByteBuffer buffer,
                @Advice.FieldValue("fileChannel") FileChannel channel) throws java.io.IOException {
            if (carried != null && !buffer.hasRemaining()) {
                carried.before(channel.position(), buffer.capacity());
            }
        }
    }

    /**
     * ExternalSorter's SpillReader.nextBatchStream, before it reads batch number batchId. A spill's class is private to
     * Spark; its first component is the file.
     */
    static final class Spilled {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.This Object reader, @Advice.FieldValue("spill") Product spill,
                @Advice.FieldValue("batchOffsets") long[] offsets, @Advice.FieldValue("batchId") int batch,
                @Advice.FieldValue(value = Stream.FIELD, readOnly = false) LocalFile carried) {
            if (batch < offsets.length - 1) {
                carried = LocalFiles.batch(carried, reader, (File) spill.productElement(0), offsets[batch],
                        offsets[batch + 1], offsets[offsets.length - 1]);
            }
        }
    }

    /** The same for a spill of an ExternalAppendOnlyMap, in DiskMapIterator.nextBatchIterator. */
    static final class SpilledMap {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.This Object reader, @Advice.FieldValue("file") File file,
                @Advice.FieldValue("batchOffsets") ArrayBuffer<?> offsets,
                @Advice.FieldValue("batchIndex") int batch,
                @Advice.FieldValue(value = Stream.FIELD, readOnly = false) LocalFile carried) {
            if (batch < offsets.length() - 1) {
                carried = LocalFiles.batch(carried, reader, file, (Long) offsets.apply(batch),
                        (Long) offsets.apply(batch + 1), (Long) offsets.last());
            }
        }
    }

    /**
     * copyFileStreamNIO, which concatenates spills. The advice copies all but the last piece before Spark's method
     * begins.
     */
    static final class Copy {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.Argument(0) FileChannel in, @Advice.Argument(1) WritableByteChannel out,
                @Advice.Argument(value = 2, readOnly = false) long start,
                @Advice.Argument(value = 3, readOnly = false) long count) {
            long done = LocalFiles.copy(in, out, start, count);
            start += done;
            count -= done;
        }
    }

    /** FileSegmentManagedBuffer.createInputStream: a shuffle block of this node, read by a task. */
    static final class Segment {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.FieldValue("file") File file, @Advice.FieldValue("offset") long offset,
                @Advice.FieldValue("length") long length,
                @Advice.Return(readOnly = false) InputStream in) {
            in = LocalFiles.gated(in, file, offset, length);
        }
    }

    /** FileSegmentManagedBuffer.nioByteBuffer, which reads or maps a shuffle block. */
    static final class SegmentWhole {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.FieldValue("file") File file, @Advice.FieldValue("offset") long offset,
                @Advice.FieldValue("length") long length) {
            LocalFiles.stage(file, offset, length);
        }
    }

    /** TransportContext.initializePipeline: parts of files leave only when they are staged. */
    static final class Pipeline {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.Argument(0) SocketChannel channel) {
            Sending.into(channel, ExecutorsFiles.all());
        }
    }

    /** DiskStore.openForWrite: a block that does not fit into memory, or is to be stored on disk. */
    static final class Stored {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.Argument(0) File file, @Advice.Return(readOnly = false) WritableByteChannel out) {
            out = LocalFiles.gated(out, file);
        }
    }

    /** DiskBlockData.toInputStream, which reads such a block. */
    static final class Block {
        @Advice.OnMethodExit(suppress = Throwable.class)
        static void exit(@Advice.FieldValue("file") File file, @Advice.FieldValue("blockSize") long size,
                @Advice.Return(readOnly = false) InputStream in) {
            in = LocalFiles.gated(in, file, 0, size);
        }
    }

    /** DiskBlockData.toChunkedByteBuffer and toByteBuffer, which read or map such a block. */
    static final class BlockWhole {
        @Advice.OnMethodEnter(suppress = Throwable.class)
        static void enter(@Advice.FieldValue("file") File file, @Advice.FieldValue("blockSize") long size) {
            LocalFiles.stage(file, 0, size);
        }
    }
}
