"""Sorts lines of text with Python workers.

usage: sort.py INPUT OUTPUT PARTITIONS     folders in HDFS; OUTPUT must not exist
       sort.py ORDERS PARTITIONS           a folder on this machine; see orders.py

A Python worker gives every line a key, the shuffle sorts the lines by key, and
they are written again.
"""
import sys

import orders
from pyspark.sql import SparkSession


def main(partitions, *where):
    spark = SparkSession.builder.getOrCreate()

    def sort(source, target):
        lines = spark.sparkContext.textFile(source)
        # The key is the reversed line, so the order changes even if the text is sorted already.
        keyed = lines.map(lambda line: (line[::-1], line))
        keyed.sortByKey(numPartitions=partitions).values().saveAsTextFile(target)

    if len(where) == 1:
        orders.serve(where[0], sort)
    else:
        sort(*where)
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(int(sys.argv[-1]), *sys.argv[1:-1])
