"""An application in simulated worlds: `fairlead simulate shop:app`.

Read in this order:
    scenario      the requests and checks that a user adds to an application
    machine       the process's clock, randomness and output, redirected to the simulated machine
    application   the application in the form that the simulator needs
May import: everything of fairlead except its command line. This folder does not import the simulator: the protocol
`machine.Machine` describes what the simulator passes in.
"""
