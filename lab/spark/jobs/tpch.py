"""Runs TPC-H queries with Spark SQL.

usage: tpch.py DATA QUERY...     DATA is a folder in HDFS with a folder for each table

Prints one line of JSON for each query: its name, when it began (seconds since
1970), how many seconds it took, the number of rows, and a digest of the rows, so
that runs can be compared. The queries are those of the TPC-H specification,
sections 2.4.9 and 2.4.21, with the specification's validation parameters.
"""
import hashlib
import json
import sys
import time

from pyspark.sql import SparkSession

TABLES = ["lineitem", "orders", "partsupp", "customer", "part", "supplier", "nation", "region"]

QUERIES = {
    # What each nation earned with green parts, by year.
    "q9": """
        WITH profit AS (
            SELECT n_name AS nation, year(o_orderdate) AS o_year,
                   l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
            FROM lineitem
            JOIN part ON p_partkey = l_partkey
            JOIN supplier ON s_suppkey = l_suppkey
            JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey
            JOIN orders ON o_orderkey = l_orderkey
            JOIN nation ON n_nationkey = s_nationkey
            WHERE p_name LIKE '%green%')
        SELECT nation, o_year, sum(amount) AS sum_profit
        FROM profit
        GROUP BY nation, o_year
        ORDER BY nation, o_year DESC""",
    # Suppliers who were the only ones to delay an order.
    "q21": """
        SELECT s_name, count(*) AS numwait
        FROM lineitem late
        JOIN supplier ON s_suppkey = late.l_suppkey
        JOIN nation ON n_nationkey = s_nationkey
        JOIN orders ON o_orderkey = late.l_orderkey
        WHERE n_name = 'SAUDI ARABIA' AND o_orderstatus = 'F'
          AND late.l_receiptdate > late.l_commitdate
          AND EXISTS (
              SELECT 1 FROM lineitem other
              WHERE other.l_orderkey = late.l_orderkey AND other.l_suppkey <> late.l_suppkey)
          AND NOT EXISTS (
              SELECT 1 FROM lineitem other
              WHERE other.l_orderkey = late.l_orderkey AND other.l_suppkey <> late.l_suppkey
                AND other.l_receiptdate > other.l_commitdate)
        GROUP BY s_name
        ORDER BY numwait DESC, s_name
        LIMIT 100""",
}


def main(data, names):
    spark = SparkSession.builder.getOrCreate()
    for table in TABLES:
        spark.read.parquet(f"{data}/{table}").createOrReplaceTempView(table)
    for name in names:
        began, begin = time.time(), time.monotonic()
        rows = spark.sql(QUERIES[name]).collect()
        seconds = time.monotonic() - begin
        digest = hashlib.sha256(repr([tuple(r) for r in rows]).encode()).hexdigest()
        print(json.dumps({"query": name, "began": began, "seconds": seconds, "rows": len(rows), "sha256": digest}), flush=True)
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) < 3 or not set(sys.argv[2:]) <= set(QUERIES):
        sys.exit(__doc__ + f"\nqueries: {', '.join(QUERIES)}")
    main(sys.argv[1], sys.argv[2:])
