package zkclient

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"
)

// maxRightsChecked is the maximum number of znodes whose rights are checked at once.
const maxRightsChecked = 4096

// ErrOpen means that others than the brokers can change a znode of the brokers' folder.
var ErrOpen = errors.New("can be changed by others than the brokers")

// CheckRights returns an error if somebody without the brokers' credentials can change the brokers' folder, or a znode in the
// given number of levels below it. Znodes keep the rights that they were created with: by brokers without credentials, or by
// somebody else. A client without credentials checks nothing. Errors: ErrOpen.
func (c *Client) CheckRights(ctx context.Context, levels int) error {
	if c.open {
		return nil
	}
	paths := []string{c.root}
	for level := 0; ; level++ {
		var below []string
		for _, path := range paths {
			if err := c.checkRights(ctx, path); errors.Is(err, zk.ErrNoNode) {
				continue // deleted, or not created yet
			} else if err != nil {
				return err
			}
			if level == levels {
				continue
			}
			names, err := c.Children(ctx, path)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				return fmt.Errorf("list %s in ZooKeeper: %w", path, err)
			}
			for _, name := range names {
				below = append(below, path+"/"+name)
			}
		}
		if len(below) == 0 {
			return nil
		}
		slices.Sort(below)
		paths = below[max(0, len(below)-maxRightsChecked):] // the newest versions are the last ones
	}
}

func (c *Client) checkRights(ctx context.Context, path string) error {
	acl, err := callWithContext(ctx, c, func() ([]zk.ACL, error) {
		acl, _, err := c.conn.GetACL(path)
		return acl, err
	})
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		err = fmt.Errorf("%s in ZooKeeper %w: the brokers' credentials cannot read its rights", path, ErrOpen)
	case errors.Is(err, zk.ErrNoNode):
		return err
	case err != nil:
		return fmt.Errorf("read the rights of %s in ZooKeeper: %w", path, err)
	default:
		other := foreign(acl, c.acl)
		if other == nil {
			return nil
		}
		err = fmt.Errorf("%s in ZooKeeper %w: %s:%s has rights there", path, ErrOpen, other.Scheme, other.ID)
	}
	return fmt.Errorf("%w; if its content is right, run `addauth digest USER:PASSWORD` and `setAcl -R %s auth::cdrwa` in zkCli.sh, otherwise delete it", err, c.root)
}

// foreign returns an entry that lets somebody else change the znode; nil if there is none.
func foreign(acl, own []zk.ACL) *zk.ACL {
	for i, a := range acl {
		if a.Perms&^zk.PermRead != 0 && !slices.ContainsFunc(own, func(o zk.ACL) bool { return o.Scheme == a.Scheme && o.ID == a.ID }) {
			return &acl[i]
		}
	}
	return nil
}
