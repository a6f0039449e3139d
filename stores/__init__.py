"""Store back-ends, one file each. The engine never imports one: they load by name, through the entry points `xump.stores`."""
