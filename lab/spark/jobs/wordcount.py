"""Counts the words of a text with Python workers.

usage: wordcount.py INPUT OUTPUT PARTITIONS [GO END]     folders in HDFS; OUTPUT must not exist

A line of OUTPUT is a word, a tab and the word's number.

With GO and END, which are paths on this machine, the job starts when the file GO
exists, and the program ends when the file END exists. Before that, the executors and
their Python workers start. The program prints a line of JSON when it is ready and when
the job is done: the step, when it began (seconds since 1970), how many seconds it took.
"""
import json
import operator
import os
import sys
import time

from pyspark.sql import SparkSession


def say(step, began):
    print(json.dumps({"step": step, "began": began, "seconds": time.time() - began}), flush=True)


def await_file(path):
    while not os.path.exists(path):
        time.sleep(0.02)


def main(source, target, partitions, go=None, end=None):
    context = SparkSession.builder.getOrCreate().sparkContext
    if go:
        began = time.time()
        context.parallelize(range(12), 12).map(lambda x: (x, 1)).reduceByKey(operator.add, partitions).collect()
        say("ready", began)
        await_file(go)
    began = time.time()
    words = context.textFile(source).flatMap(str.split)
    counts = words.map(lambda word: (word, 1)).reduceByKey(operator.add, partitions)
    counts.map(lambda pair: f"{pair[0]}\t{pair[1]}").saveAsTextFile(target)
    say("done", began)
    if end:
        await_file(end)
    context.stop()


if __name__ == "__main__":
    if len(sys.argv) not in (4, 6):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
