"""Store back-ends, each in one file or a few with one prefix. The engine never imports one: they load by name, through the entry
points `xump.stores`."""
