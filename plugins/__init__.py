"""The plugins that come with nodectl, loaded by the door a site's own file uses."""
