"""The proofs.

Unit tests mirror the folders they test; beside them:
    contract/    every test of the engine API, over every engine
    acceptance/  the whole system on real Ray
    protocol_models/  models of protocols: every order of their transactions is explored
    style/       the rules of the house that no linter knows
"""
