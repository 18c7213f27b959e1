"""Runs a job again and again, each time that a file orders it.

An order is a file in a folder: its name is its number, counted from 1, and its content
is the job's input and output, separated by a space. When the job is done, a line of
JSON is printed: the number, when the job began (seconds since 1970), how many seconds
it took. A file with the name "end" ends the program.
"""
import json
import os
import time


def serve(folder, run):
    print(json.dumps({"step": "0", "began": time.time(), "seconds": 0}), flush=True)
    number = 1
    while not os.path.exists(os.path.join(folder, "end")):
        order = os.path.join(folder, str(number))
        if not os.path.exists(order):
            time.sleep(0.02)
            continue
        with open(order) as f:
            source, target = f.read().split()
        began = time.time()
        run(source, target)
        print(json.dumps({"step": str(number), "began": began, "seconds": time.time() - began}), flush=True)
        number += 1
