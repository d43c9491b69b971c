"""Simulation: workflows run through the real engine and interpreter in virtual time, with scripted outcomes. Pure.

What the controller and the cluster do for a real run, `world` does here: it starts attempts and children, delivers signals,
applies parent close policies, starts the runs that continue or retry others. It takes no time and touches nothing.
"""
