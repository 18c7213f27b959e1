/** Advice for the NodeManager's shuffle handler, and the parts of map output that it sends. */
package penstock.shuffle;
