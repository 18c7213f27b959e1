/**
 * Which servers hold which bytes of a file.
 *
 * <p>A {@link penstock.sharedfs.layout.Layout} asks a parallel file system by running its own tool, and returns a
 * {@link penstock.sharedfs.layout.Placement}. The {@link penstock.sharedfs.layout.Locator} caches placements and turns
 * every failure into "no locality", with a count and at most one warning a minute. Nothing here affects data: a wrong
 * placement makes a task read over the network.
 */
package penstock.sharedfs.layout;
