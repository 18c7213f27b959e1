/** The entry of the Java agent, and the weaver. It imports all other packages; none imports it. */
package penstock.agent;
