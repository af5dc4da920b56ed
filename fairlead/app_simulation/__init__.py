"""An application in the simulator's worlds: `fairlead simulate shop:app`.

Read in this order:
    scenario      what a user adds to an application so that it can be simulated: requests and checks
    machine       the machine's clock and dice, replaced while a world runs
    application   the application as the simulator takes it
May import: everything of fairlead but its command line. The simulator itself is not known here: what it hands over is
described by `machine.Machine`.
"""
