/** The entry of the Java agent, and the weaver. It knows all other packages; none knows it. */
package penstock.agent;
