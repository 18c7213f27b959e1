package penstock.core;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class NamesTest {
    @ParameterizedTest
    @CsvSource({
        "DFSClient_attempt_1700000000000_0001_m_000000_0_-1234_1, application_1700000000000_0001",
        "DFSClient_attempt_1700000000000_0042_r_000003_1_77_1, application_1700000000000_0042",
        "DFSClient_attempt_1700000000000_12345_m_000000_0_1_1, application_1700000000000_12345",
        // Tez numbers its DAG where MapReduce has the task's type.
        "DFSClient_attempt_1700000000000_0007_1_00_000000_0_5_1, application_1700000000000_0007",
        "DFSClient_NONMAPREDUCE_-190_1, clients",
        // Spark's dates: 14 digits, and 14 digits followed by the job's number.
        "DFSClient_attempt_20260101123059_0001_m_000000_0_1_1, unattributed",
        "DFSClient_attempt_202601011230595712345678_0001_m_000000_0_1_1, unattributed",
        "DFSClient_attempt_170000000000_0001_m_000000_0_1_1, unattributed",
        "DFSClient_attempt_1700000000000_001_m_000000_0_1_1, unattributed",
        "DFSClient_attempt_1700000000000_00000000001_m_1, unattributed",
        "DFSClient_attempt_1700000000000_0001, unattributed",
        "DFSClient_attempt_1700000000000, unattributed",
        "DFSClient_attempt_1700000000000x0001_m_1, unattributed",
        "DFSClient_attempt_local42_0001_m_000000_0_1_1, unattributed",
        "DFSClient_attempt_, unattributed",
        "DFSClient_, unattributed",
        "attempt_1700000000000_0001_m_000000_0, unattributed",
        "application_1700000000000_0001, unattributed",
        // Penstock's file system for Spark, on YARN and on a standalone cluster.
        "DFSClient_attempt_1700000000000_0042_spark_-99_31, application_1700000000000_0042",
        "DFSClient_app-20261122123456-0007_-99_31, app-20261122123456-0007",
        "DFSClient_app-20261122123456-12345_99_31, app-20261122123456-12345",
        "DFSClient_spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e_-99_31, spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e",
        "DFSClient_spark-application-1546031781274_99_31, spark-application-1546031781274",
        "DFSClient_5b1c2d3e-1111-4222-8333-444455556666-0007_99_31, 5b1c2d3e-1111-4222-8333-444455556666-0007",
        "DFSClient_5b1c2d3e-1111-4222-8333-444455556666-0007-driver-20260102030405-0001-retry-1_99_31, "
            + "5b1c2d3e-1111-4222-8333-444455556666-0007-driver-20260102030405-0001-retry-1",
        "DFSClient_5b1c2d3e-1111-4222-8333-444455556666-0007-driver-20260102030405_99_31, "
            + "client:5b1c2d3e-1111-4222-8333-444455556666-0007-driver-20260102030405",
        "DFSClient_spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5_99_31, client:spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5",
        "DFSClient_spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e0_99_31, client:spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e0",
        "DFSClient_spark-5B9C1f0e2d3a4b5c8d7e6f1a2b3c4d5e_99_31, client:spark-5B9C1f0e2d3a4b5c8d7e6f1a2b3c4d5e",
        "DFSClient_spark-application-154603178127_99_31, client:spark-application-154603178127",
        "DFSClient_5b1c2d3e-1111-4222-8333-444455556666-007_99_31, client:5b1c2d3e-1111-4222-8333-444455556666-007",
        "DFSClient_5b1c2d3e-1111-4222-8333-444455556666_99_31, client:5b1c2d3e-1111-4222-8333-444455556666",
        "DFSClient_app-20261122123456-007_99_31, client:app-20261122123456-007",
        "DFSClient_app-20261122123456-00000000001_99_31, client:app-20261122123456-00000000001",
        "DFSClient_app-2026112212345-0007_99_31, client:app-2026112212345-0007",
        "DFSClient_app-202611221234567-0007_99_31, client:app-202611221234567-0007",
        "DFSClient_app-20261122123456-0007, unattributed",
        "DFSClient_app-20261122123456-0007x_99_31, client:app-20261122123456-0007x",
        "DFSClient_app-20261122123456-0007_x_31, unattributed",
        // Names that the operators of services choose.
        "DFSClient_app-clients_99_31, client:app-clients",
        "'DFSClient_hb_rs_host,16020,1700000000000_-99_31', 'client:hb_rs_host,16020,1700000000000'",
        "DFSClient_trino_99_31, client:trino",
        "DFSClient_client:trino_99_31, client:client:trino",
        "DFSClient_99_31, unattributed",
        "DFSClient_a b_99_31, unattributed",
        "DFSClient_a\u00e9_99_31, unattributed",
        "DFSClient__99_31, unattributed",
        "go-hdfs-7, unattributed",
        "app-20261122123456-0007, unattributed",
        "hbase, unattributed",
        "'', unattributed",
    })
    void reads(String client, String flow) {
        assertEquals(flow, Names.ofClient(client));
    }

    @Test
    void otherDigitsAreNoDigits() {
        assertEquals("unattributed", Names.ofClient("DFSClient_attempt_170000000000\u0663_0001_m_1"));
        assertEquals("unattributed", Names.ofClient(null));
    }

    @Test
    void aClaimHasABound() {
        String name = "x".repeat(100);
        assertEquals("client:" + name, Names.ofClient("DFSClient_" + name + "_1_1"));
        assertEquals("unattributed", Names.ofClient("DFSClient_" + name + "x_1_1"));
    }

    @ParameterizedTest
    @CsvSource({
        "container_1700000000000_0042_01_000002, '', application_1700000000000_0042",
        "container_e17_1700000000000_0042_01_000002, app-20261122123456-0007, application_1700000000000_0042",
        "'', app-20261122123456-0007, app-20261122123456-0007",
        "'', app-20261122123456-0007x, ",
        "'', spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e, spark-5b9c1f0e2d3a4b5c8d7e6f1a2b3c4d5e",
        "'', 5b1c2d3e-1111-4222-8333-444455556666-0007, 5b1c2d3e-1111-4222-8333-444455556666-0007",
        "'', 5b1c2d3e-1111-4222-8333-444455556666-0007-driver-20260102030405-0001, "
            + "5b1c2d3e-1111-4222-8333-444455556666-0007-driver-20260102030405-0001",
        "'', spark-x, ",
        "'', application_1700000000000_0042, ",
        "'', {{APP_ID}}, ",
        "'', clients, ",
        "'', '', ",
        ", , ",
    })
    void aProcessWorksForOneApplication(String container, String application, String flow) {
        assertEquals(flow, Names.ofProcess(container, application));
        if (flow != null) {
            assertEquals(flow, Names.ofClient("DFSClient_" + Names.taskOf(flow) + "_-1234_1"));
        }
    }

    @Test
    void aPipelineWithoutAClientReplicates() {
        assertEquals("replication", Names.ofPipeline("", false));
        assertEquals("clients", Names.ofPipeline("DFSClient_NONMAPREDUCE_1_1", true));
        assertEquals("unattributed", Names.ofPipeline(null, true));
    }

    @Test
    void onlyADataNodeIsNameless() {
        assertEquals("reconstruction", Names.ofRead(""));
        assertEquals("reconstruction", Names.ofPipeline("", true));
        assertEquals("unattributed", Names.ofClient(""));
        assertEquals("unattributed", Names.ofRead(null));
        assertEquals("clients", Names.ofRead("DFSClient_NONMAPREDUCE_1_1"));
    }

    @ParameterizedTest
    @CsvSource({
        "container_1700000000000_0042_01_000002, application_1700000000000_0042",
        "container_e17_1700000000000_12345_02_000123, application_1700000000000_12345",
        "container_1700000000000_0042_01, ",
        "container_170000000000_0042_01_000002, ",
        "container_e_1700000000000_0042_01_000002, ",
        "xcontainer_1700000000000_0042_01_000002, ",
        "'', ",
        ", ",
    })
    void containers(String container, String flow) {
        assertEquals(flow, Names.ofContainer(container));
    }
}
