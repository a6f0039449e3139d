"""Makes a program of a world that fails a smaller one that fails: it leaves out calls, as long as it fails without them."""

from contextlib import suppress


def failure_of(world_class, given, program):
    """What goes wrong when the program is run, or None."""
    world = world_class(*given)
    try:
        for name, args, named in program:
            getattr(world, name)(*args, **named)
            world.compare()
    except AssertionError as error:
        return None if world.is_undecided() else str(error)
    finally:
        while world.blocks:
            with suppress(AssertionError):
                world.build()
        world.close()
    return None


def shrunk(world_class, given, program):
    """A part of the program that fails, of which no call can be left out."""
    return smallest(program, lambda rest: failure_of(world_class, given, rest) is not None)


def smallest(items, fails):
    """A part of a list that fails, of which none can be left out."""
    size = max(1, len(items) // 2)
    while True:
        start, smaller = 0, False
        while start < len(items):
            rest = items[:start] + items[start + size :]
            if fails(rest):
                items, smaller = rest, True
            else:
                start += size
        if size == 1 and not smaller:
            return items
        size = max(1, size // 2)


def told(world_class, given, program, error):
    """The smallest program, as Python, and what goes wrong in it. `error`: what went wrong at first."""
    program = list(program)
    if failure_of(world_class, given, program) is None:
        return f"it does not fail when it is run again; the first time: {difference(error)}\n{source(given, program)}"
    program = shrunk(world_class, given, program)
    return f"\n{source(given, program)}\n{difference(failure_of(world_class, given, program))}"


def difference(error):
    """What went wrong, without the journal."""
    return str(error).partition("\nWorld")[0]


def source(given, program):
    lines = [f"world = World{given!r}"]
    for name, args, named in program:
        words = [repr(value) for value in args] + [f"{key}={value!r}" for key, value in named.items()]
        lines.append(f"world.{name}({', '.join(words)})")
    return "\n".join(lines)
